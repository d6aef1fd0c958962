"""What a trace says and what to change: findings, and the page that shows them."""
