package verbs

import (
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

var apiOptions = word.ParseOptions(`-q= --jq= -t= --template= --paginate --slurp --cache= -H= --header= -i --include --silent --verbose -X= --method= -f= --raw-field= -F= --field=`)

// ghAsks tells a gh api that only asks: GET, or a query of GraphQL that is seen.
// Fields make it a POST unless its method is given.
func ghAsks(args []word.Word) bool {
	r := apiOptions.Read(args, false)
	if r.Bad != "" || r.Doubt != "" || len(r.Rest) != 1 || !r.Rest[0].Literal() || strings.Contains(r.Rest[0].Text, "://") {
		return false
	}
	get, fields, query := false, 0, false
	for _, g := range r.Given {
		switch g.Name {
		case "-X", "--method":
			if get = g.Value.Is("GET"); !get {
				return false
			}
		case "-H", "--header":
			if !strings.HasPrefix(g.Value.Text, "Accept:") && !strings.HasPrefix(g.Value.Text, "X-GitHub-Api-Version:") {
				return false
			}
		case "-f", "--raw-field", "-F", "--field":
			fields++
			name, value, _ := strings.Cut(g.Value.Text, "=")
			value = strings.TrimSpace(value)
			if strings.HasPrefix(value, "@") || !g.Value.Known {
				return false // a file is sent
			}
			if name == "query" {
				query = (strings.HasPrefix(value, "{") || strings.HasPrefix(value, "query")) && !strings.Contains(value, "mutation") && !query
			}
		}
	}
	return fields == 0 || get || query && strings.Trim(r.Rest[0].Text, "/") == "graphql"
}
