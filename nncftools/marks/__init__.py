"""Operations that a program names while it is recorded."""
