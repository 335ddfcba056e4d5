"""What a program uses to record itself."""
