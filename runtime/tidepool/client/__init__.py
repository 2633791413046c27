"""The client, which `import tidepool` gives programs and notebooks. Imports nothing else of the runtime."""
