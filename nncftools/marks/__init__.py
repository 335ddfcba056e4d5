"""Operations that a program marks during a recording."""
