"""The Model Context Protocol over streamable HTTP: an MCP session is one episode."""
