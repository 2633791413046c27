"""The documents of the repository as pages of the site, below `/help/`. `core.help_links` makes their addresses."""
