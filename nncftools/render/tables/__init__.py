"""Tables as data, and the text and Markdown that show them."""
