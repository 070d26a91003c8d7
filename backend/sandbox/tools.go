package sandbox

import (
	"encoding/json"

	"sallyport.dev/sallyport"
)

// Tools returns the built-in tools that run code, for the catalogue.
func Tools() []sallyport.Tool {
	return []sallyport.Tool{
		tool("run_python", "python", "Runs a Python 3 program in a fresh sandbox without network and returns what it prints.",
			"The program. It runs as main.py in an empty working folder, beside the given files."),
		tool("run_javascript", "javascript", "Runs a Node.js program in a fresh sandbox without network and returns what it prints.",
			"The program. It runs as main.js (main.mjs if it uses import or export) in an empty working folder, beside the given files."),
		tool("run_shell", "shell", "Runs a Bash script in a fresh sandbox without network and returns what it prints.",
			"The script. It runs as main.sh in an empty working folder, beside the given files."),
	}
}

func tool(name, lang, description, code string) sallyport.Tool {
	return sallyport.Tool{
		Name: name, Description: description,
		InputSchema: inputSchema(code), OutputSchema: OutputSchema(),
		Origin:   sallyport.Origin{Backend: "sandbox", Name: name},
		Code:     &sallyport.Script{Language: lang},
		Manifest: sallyport.Manifest{Trust: "agent", Tiers: []string{tierGVisor}, Limits: sallyport.DefaultLimits()},
	}
}

type schema map[string]any

// maxText bounds what is written into the sandbox, in characters: its disk
// holds no more. The size of a whole request is bounded before.
const maxText = 64 << 20

func inputSchema(code string) json.RawMessage {
	return marshal(schema{
		"type":     "object",
		"required": []string{"code"},
		"properties": schema{
			"code":            schema{"type": "string", "minLength": 1, "maxLength": maxText, "description": code},
			"stdin":           schema{"type": "string", "maxLength": maxText, "description": "What the program reads from its standard input."},
			"files":           schema{"type": "object", "additionalProperties": schema{"type": "string", "maxLength": maxText}, "maxProperties": 999, "description": "Files to make in the working folder, by relative path, such as {\"data/in.csv\": \"a,b\\n\"}."},
			"timeout_seconds": schema{"type": "number", "exclusiveMinimum": 0, "maximum": sallyport.DefaultLimits().Timeout.Seconds(), "description": "Ends the program after this many seconds."},
			"tier":            schema{"type": "string", "enum": []string{tierGVisor}, "description": "How strongly the program is isolated."},
			"network":         schema{"type": "string", "enum": []string{"none"}, "description": "A call can only take the network away."},
		},
		"additionalProperties": false,
	})
}

// OutputSchema describes structuredContent of a run.
func OutputSchema() json.RawMessage {
	text := schema{"type": "string"}
	encoding := schema{"type": "string", "enum": []string{"base64"}, "description": "Given where the bytes are not valid UTF-8."}
	return marshal(schema{
		"type":     "object",
		"required": []string{"exit_code", "stdout", "stderr", "duration_ms", "tier", "sandbox_id", "truncated"},
		"properties": schema{
			"exit_code":         schema{"type": "integer", "description": "128+n where signal n ended the program."},
			"signal":            schema{"type": "string", "description": "The signal that ended the program; absent if it exited."},
			"stdout":            text,
			"stdout_encoding":   encoding,
			"stderr":            text,
			"stderr_encoding":   encoding,
			"duration_ms":       schema{"type": "integer", "minimum": 0},
			"tier":              text,
			"sandbox_id":        text,
			"truncated":         schema{"type": "boolean"},
			"killed_by":         schema{"type": "string", "enum": []string{"memory", "timeout"}},
			"limits_hit":        schema{"type": "array", "items": schema{"type": "string", "enum": []string{"processes", "disk", "output"}}},
			"peak_memory_bytes": schema{"type": "integer", "minimum": 0},
			"connections": schema{"type": "array", "description": "What the program reached, or tried to.", "items": schema{
				"type": "object", "required": []string{"target", "allowed", "count"}, "properties": schema{
					"target": text, "allowed": schema{"type": "boolean"}, "reason": text,
					"count": schema{"type": "integer", "minimum": 1}, "bytes": schema{"type": "integer", "minimum": 0},
				},
			}},
			"receipt":       schema{"type": "object", "description": "How the run was really held, read back from its sandbox: image, limits, egress rules, versions, exit reason."},
			"egress_denied": schema{"type": "array", "items": text, "description": "What a rule, not the network, kept the program from reaching."},
		},
	})
}

// marshal encodes a schema; encoding/json sorts keys, so it is the same each time.
func marshal(s schema) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // literals above
	}
	return b
}
