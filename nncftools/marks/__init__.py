"""Operations that a program marks while it is recorded."""
