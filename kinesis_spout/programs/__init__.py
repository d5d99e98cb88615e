"""Programs beside this one: where they find our modules and the user's, and how they end."""
