// Package trace says which events of a sandbox its kernel tells Sallyport.
package trace

import (
	"encoding/json"
	"strconv"
)

// NoExits is no descriptor: the ends of processes are not told.
const NoExits = -1

// Config asks the sandbox's kernel to show the ends of those system calls that can
// run into a limit to the sinks in cmd/sallyport-runsc, which write to the descriptor
// limits; and when processes start and end, to exits.
func Config(limits, exits int) ([]byte, error) {
	type object map[string]any
	points, sinks := []object{}, []object{{"name": "sallyport-limits", "config": object{"fd": limits, "forks": forkCalls}}}
	for _, n := range append(append([]int{}, forkCalls...), spaceCalls...) {
		points = append(points, object{"name": "syscall/sysno/" + strconv.Itoa(n) + "/exit"})
	}
	if exits != NoExits {
		points = append(points, object{"name": "sentry/clone"}, object{"name": "sentry/task_exit", "context_fields": []string{"group_id"}})
		sinks = append(sinks, object{"name": "sallyport-exits", "config": object{"fd": exits}})
	}
	return json.Marshal(object{"trace_session": object{"name": "Default", "points": points, "sinks": sinks}})
}
