"""What ``adaptk table`` does with tables: show, doubt, export, import, compare and correct them."""
