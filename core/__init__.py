"""The base below all apps: live events, audit, lists, uploads, roles. Every app may call it; it imports none."""
