package upstream_test

import (
	"testing"

	"sallyport.dev/sallyport/backend/upstream"
)

// Servers of 2025-03-26 may send several messages at once, as a program does on a line.
func TestAnswersInBatchesOfPrograms(t *testing.T) {
	t.Parallel()
	script := `while read -r line; do
id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
case $line in
*'"initialize"'*) echo '[{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}]' ;;
*'"tools/list"'*) echo '[{"jsonrpc":"2.0","method":"notifications/message","params":{}},{"jsonrpc":"2.0","id":'$id',"result":{"tools":[]}}]' ;;
*'"tools/call"'*) echo '[{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"one of several"}]}}]' ;;
*'"server/discover"'*) echo '[{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no"}}]' ;;
esac
done`
	b := open(t, options(), upstream.Config{Name: "s", Argv: []string{"/bin/sh", "-c", script}, Isolation: "none"})
	if got := mustText(t, b, "s", "x", `{}`); got != "one of several" {
		t.Errorf("got %q", got)
	}
}
