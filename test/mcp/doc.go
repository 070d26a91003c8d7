// Package mcp puts real MCP servers behind the path and real MCP clients before
// it, in one process: every engine is the gateway's own, but for the ledger.
package mcp
