package sandbox

import (
	"encoding/json"
	"maps"
	"slices"

	"sallyport.dev/sallyport"
)

// Tools returns the built-in tools that run code, for the catalogue. A call may
// choose one of images as its own.
func Tools(images sallyport.Images) []sallyport.Tool {
	all := []sallyport.Tool{
		tool("run_python", "python", "Runs a Python 3 program in a fresh sandbox without network and returns what it prints, and the files and figures that it leaves in /home/output.",
			"The program. It runs as main.py in an empty working folder, beside the given files."),
		withTools(tool("run_javascript", "javascript", "Runs a Node.js program in a fresh sandbox without network and returns what it prints, and the files that it leaves in /home/output. "+
			"With tools, the program can call other tools of yours as functions.",
			"The program. It runs as main.js (main.mjs if it uses import or export) in an empty working folder, beside the given files.")),
		tool("run_shell", "shell", "Runs a Bash script in a fresh sandbox without network and returns what it prints, and the files that it leaves in /home/output.",
			"The script. It runs as main.sh in an empty working folder, beside the given files."),
		sessionTool(),
	}
	for i := range all {
		if len(images) > 0 {
			all[i].Manifest.Images = images
			all[i].InputSchema = withImages(all[i].InputSchema, images)
		}
	}
	return all
}

// withTools adds the argument that names what the program may call.
func withTools(t sallyport.Tool) sallyport.Tool {
	var s schema
	if err := json.Unmarshal(t.InputSchema, &s); err != nil {
		panic(err) // our own
	}
	s["properties"].(map[string]any)["tools"] = schema{
		"type": "array", "minItems": 1, "maxItems": 64, "uniqueItems": true, "items": schema{"type": "string", "pattern": `^[A-Za-z0-9_-]{0,64}\*?$`, "minLength": 1, "maxLength": 65},
		"description": "Names of tools that the program may call, such as [\"memory__*\"]. It then runs as main.mjs: await tools.SERVER.TOOL({...}) returns the structured content, or the text, and throws where the call fails. " +
			"console.log(tools.$list()) prints what there is, tools.$describe(\"memory__*\") the TypeScript declarations. Each call is judged by itself. " +
			"If one needs a human, the program ends with approval_pending; run it again with the same idempotency key, and what was done is not done again.",
	}
	t.InputSchema = marshal(s)
	return t
}

// withImages adds the argument that chooses an image.
func withImages(input json.RawMessage, images sallyport.Images) json.RawMessage {
	var s schema
	if err := json.Unmarshal(input, &s); err != nil {
		panic(err) // our own
	}
	s["properties"].(map[string]any)["image"] = schema{"type": "string", "enum": slices.Sorted(maps.Keys(images)), "description": "The files and programs that the code finds. Leave it out for the usual ones."}
	return marshal(s)
}

func tool(name, lang, description, code string) sallyport.Tool {
	tiers := []string{sallyport.TierGVisor, sallyport.TierMicroVM}
	strength := "How strongly the program is isolated: gvisor where nothing is said; microvm is a virtual machine with a kernel of its own."
	if lang == "javascript" {
		tiers = []string{sallyport.TierGVisor, sallyport.TierIsolate, sallyport.TierMicroVM}
		strength += " isolate is a V8 isolate, for short JavaScript without Node's modules: it starts in milliseconds; stdin is a string of that name."
	}
	return sallyport.Tool{
		Name: name, Description: description,
		InputSchema: inputSchema(code, tiers, strength), OutputSchema: OutputSchema(),
		Origin:   sallyport.Origin{Backend: "sandbox", Name: name},
		Code:     &sallyport.Script{Language: lang},
		Manifest: sallyport.Manifest{Trust: "agent", Tiers: tiers},
	}
}

type schema map[string]any

// maxText bounds what is written into the sandbox, in characters: its disk
// holds no more. The size of a whole request is bounded before.
const maxText = 64 << 20

func inputSchema(code string, tiers []string, strength string) json.RawMessage {
	return marshal(schema{
		"type":     "object",
		"required": []string{"code"},
		"properties": schema{
			"code":            schema{"type": "string", "minLength": 1, "maxLength": maxText, "description": code},
			"stdin":           schema{"type": "string", "maxLength": maxText, "description": "What the program reads from its standard input."},
			"files":           schema{"type": "object", "additionalProperties": schema{"type": "string", "maxLength": maxText}, "maxProperties": 999, "description": "Files to make in the working folder, by relative path, such as {\"data/in.csv\": \"a,b\\n\"}."},
			"timeout_seconds": schema{"type": "number", "exclusiveMinimum": 0, "maximum": sallyport.DefaultLimits().Timeout.Seconds(), "description": "Ends the program after this many seconds."},
			"tier":            schema{"type": "string", "enum": tiers, "description": strength},
			"session":         schema{"type": "string", "pattern": sessionPattern, "maxLength": 64, "description": "Keeps the sandbox under this name for your next calls: variables of Python and JavaScript, the folder and exported variables of the shell, files. It ends when it is idle or when a call is killed."},
			"background":      schema{"type": "boolean", "description": "Only with session: starts the program, as a process of its own, and answers at once with a job number; sandbox_session reads its output."},
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
			"tier_reason":       schema{"type": "string", "description": "Why it is that tier."},
			"accelerator":       schema{"type": "string", "description": "Of a virtual machine: kvm, or tcg, which is software."},
			"sandbox_id":        text,
			"truncated":         schema{"type": "boolean"},
			"killed_by":         schema{"type": "string", "enum": []string{"memory", "timeout", "caller"}, "description": "caller: the gateway ended a script; code says why."},
			"limits_hit":        schema{"type": "array", "items": schema{"type": "string", "enum": []string{"processes", "disk", "output", "memory"}}},
			"peak_memory_bytes": schema{"type": "integer", "minimum": 0},
			"session":           text,
			"session_new":       schema{"type": "boolean", "description": "The session began with this call: nothing of an earlier one is there."},
			"session_ended":     schema{"type": "string", "description": "Why the session is over; the next call with its name begins anew."},
			"interpreter_ended": schema{"type": "boolean", "description": "The interpreter has ended, and its variables with it; files are still there."},
			"artifacts": schema{"type": "array", "description": "Files that the program left in /home/output ($SALLYPORT_OUTPUT); they follow as content.", "items": schema{
				"type": "object", "required": []string{"path", "mime_type", "bytes"}, "properties": schema{"path": text, "mime_type": text, "bytes": schema{"type": "integer", "minimum": 0}},
			}},
			"artifacts_left_out": schema{"type": "array", "items": text, "description": "More such files, that are not in the result."},
			"job":                schema{"type": "integer", "minimum": 1, "description": "Of a program in the background."},
			"connections": schema{"type": "array", "description": "What the program reached, or tried to.", "items": schema{
				"type": "object", "required": []string{"target", "allowed", "count"}, "properties": schema{
					"target": text, "allowed": schema{"type": "boolean"}, "reason": text,
					"count": schema{"type": "integer", "minimum": 1}, "bytes": schema{"type": "integer", "minimum": 0},
				},
			}},
			"calls": schema{"type": "array", "description": "What a script called, in order.", "items": schema{
				"type": "object", "required": []string{"n", "tool"}, "properties": schema{
					"n": schema{"type": "integer", "minimum": 1}, "tool": text, "call_id": text, "code": text, "ticket": text,
					"replay": schema{"type": "boolean", "description": "An earlier run did it."}, "is_error": schema{"type": "boolean"},
				},
			}},
			"code":          schema{"type": "string", "description": "Why a script had to end, such as approval_pending."},
			"message":       text,
			"hint":          text,
			"ticket":        text,
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
