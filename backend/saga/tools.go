package saga

import (
	"encoding/json"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/saga/plan"
)

type schema map[string]any

// Tools returns the saga tools, for the catalogue.
func Tools() []sallyport.Tool {
	id := schema{"type": "string", "minLength": 1, "maxLength": 64, "description": "The saga's id."}
	return []sallyport.Tool{
		tool(plan.ToolRun, "Starts a plan: calls in order, each with what undoes it. If one fails, those before it are undone, the last first. "+
			"Returns the saga's id at once; saga_status tells how it goes.", schema{
			"plan":   schema{"type": "object", "additionalProperties": true, "maxProperties": 16, "description": "The plan: name, steps [{id, tool, arguments, compensate: {tool, arguments} or \"none\"}]. An argument {\"$ref\": \"steps.ID.structuredContent.FIELD\"} takes a value from an earlier result."},
			"name":   schema{"type": "string", "minLength": 1, "maxLength": 64, "description": "A plan that the operator keeps, instead of plan."},
			"inputs": schema{"type": "object", "additionalProperties": true, "maxProperties": 256, "description": "Values for {\"$ref\": \"inputs.NAME\"}."},
		}),
		tool(plan.ToolStatus, "Shows one of the caller's sagas with every step, or without an id the latest ones.", schema{
			"id":           id,
			"wait_seconds": schema{"type": "number", "minimum": 0, "maximum": 50, "description": "Wait so long for the saga to end or to need somebody."},
			"results":      schema{"type": "boolean", "description": "Include what the steps returned."},
		}),
		tool(plan.ToolBegin, "Opens a saga for the caller's own calls: those that carry its id in _meta[\"dev.sallyport/saga\"] can be undone together with saga_rollback, until saga_commit.", schema{
			"name":            schema{"type": "string", "minLength": 1, "maxLength": 64, "description": "What it is for, for people."},
			"timeout_seconds": schema{"type": "number", "exclusiveMinimum": 0, "maximum": 86400, "description": "End it sooner than the gateway would."},
		}),
		tool(plan.ToolCommit, "Ends an open saga: its calls stay done.", schema{"id": id}, "id"),
		tool(plan.ToolRollback, "Undoes an open saga, or cancels a running one: its calls are undone, the last first.", schema{
			"id": id, "reason": schema{"type": "string", "maxLength": 500, "description": "Why, for the record."},
		}, "id"),
	}
}

func tool(name, description string, properties schema, required ...string) sallyport.Tool {
	in := schema{"type": "object", "properties": properties, "additionalProperties": false}
	in["required"] = append([]string{}, required...)
	return sallyport.Tool{
		Name: name, Description: description, InputSchema: marshal(in),
		Origin: sallyport.Origin{Backend: plan.Backend, Name: name},
	}
}

func marshal(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // literals above
	}
	return b
}
