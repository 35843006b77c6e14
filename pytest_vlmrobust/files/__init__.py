"""Files that users and strangers write: YAML and images, and what is refused in them."""
