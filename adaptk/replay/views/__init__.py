"""What a person sees of a replay: tables, figures, words."""
