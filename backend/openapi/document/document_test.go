package document

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

func shop(t testing.TB) *Document {
	t.Helper()
	text, err := os.ReadFile("testdata/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d, err := Read(text, "", "")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func find(t testing.TB, d *Document, name string) Operation {
	t.Helper()
	i := slices.IndexFunc(d.Operations, func(o Operation) bool { return o.Name == name })
	if i < 0 {
		t.Fatalf("there is no operation %q; warnings: %q", name, d.Warnings)
	}
	return d.Operations[i]
}

func TestShop(t *testing.T) {
	d := shop(t)
	if d.Base != "https://eu.pets.example/v1" || d.Version != "3.0.3" || d.Title != "Pet shop" || d.Foreign {
		t.Errorf("read %+v", d)
	}
	var names []string
	for _, o := range d.Operations {
		names = append(names, o.Name)
		if err := wire.Validate(o.Definition); err != nil {
			t.Errorf("%s: %v", o.Name, err)
		}
	}
	want := []string{"blob", "note", "order", "listPets", "addPet", "getPet", "deletePet", "post_pets_id_photo"}
	if !slices.Equal(names, want) {
		t.Errorf("operations %q, want %q", names, want)
	}
	if len(d.Warnings) != 1 || !strings.Contains(d.Warnings[0], "TRACE") {
		t.Errorf("warnings %q", d.Warnings)
	}
}

// Each row is a place in a definition or route, and what stands there.
func TestOperations(t *testing.T) {
	d := shop(t)
	for _, c := range []struct{ name, pointer, want string }{
		{"listPets", "/inputSchema/properties/limit", `{"exclusiveMinimum":0,"format":"int64","maximum":100,"type":"integer"}`},
		{"listPets", "/inputSchema/properties/tag", `{"description":"(tag[] in query)","items":{"type":"string"},"type":"array"}`},
		{"listPets", "/inputSchema/additionalProperties", `false`},
		{"listPets", "/route/params/0", `{"argument":"session","name":"session","in":"cookie","style":"form","explode":true}`},
		{"listPets", "/route/params/1", `{"argument":"X-Request-Id","name":"X-Request-Id","in":"header","style":"simple"}`},
		{"listPets", "/route/params/4", `{"argument":"tag","name":"tag[]","in":"query","style":"form","explode":true}`},
		{"listPets", "/route/auth", `[[{"scheme":"api_key","kind":"header","name":"X-Api-Key"}]]`},
		{"listPets", "/outputSchema/properties/items/items", `{"$ref":"#/$defs/Pet"}`},
		{"listPets", "/outputSchema/$defs/Pet/properties/id", `{"format":"int64","readOnly":true,"type":"integer"}`},
		{"listPets", "/outputSchema/$defs/Owner/properties/secret", ``},
		{"addPet", "/inputSchema/$defs/Pet/properties/id", ``},
		{"addPet", "/inputSchema/$defs/Pet/required", `["name"]`},
		{"addPet", "/inputSchema/$defs/Pet/properties/mother", `{"$ref":"#/$defs/Pet"}`},
		{"addPet", "/inputSchema/$defs/Pet/properties/colour", `{"enum":["black","white",null],"type":["string","null"]}`},
		{"addPet", "/inputSchema/$defs/Pet/properties/owner/anyOf/1", `{"type":"null"}`},
		{"addPet", "/inputSchema/$defs/Owner/properties/secret", `{"type":"string","writeOnly":true}`},
		{"addPet", "/inputSchema/required", `["body"]`},
		{"addPet", "/route/body", `{"argument":"body","type":"application/json","form":"json"}`},
		{"getPet", "/route/url", `"https://eu.pets.example/v1/pets/{id}"`},
		{"getPet", "/route/params/0/argument", `"path.id"`},
		{"getPet", "/route/params/1/argument", `"query.id"`},
		{"getPet", "/inputSchema/required", `["path.id"]`},
		{"deletePet", "/route/method", `"DELETE"`},
		{"deletePet", "/route/auth", ``},
		{"deletePet", "/annotations/readOnlyHint", `false`},
		{"deletePet", "/annotations/destructiveHint", `true`},
		{"deletePet", "/_meta/dev.sallyport~1deprecated", `true`},
		{"post_pets_id_photo", "/route/body/fields/photo", `{"type":"image/png","base64":true}`},
		{"post_pets_id_photo", "/inputSchema/properties/id", `{"type":"string"}`},
		{"order", "/route/auth", `[[{"scheme":"oauth","kind":"oauth2","token_url":"/v1/token","scopes":["orders"]}],[{"scheme":"basic","kind":"basic"}]]`},
		{"order", "/route/body/fields", `{"card":{"style":"deepObject"},"extras":{"style":"joined"}}`},
		{"note", "/route/body/form", `"text"`},
		{"blob", "/inputSchema/properties/body", `{"contentEncoding":"base64","type":"string"}`},
	} {
		o := find(t, d, c.name)
		doc, pointer := o.Definition, c.pointer
		if rest, ok := strings.CutPrefix(pointer, "/route"); ok {
			b, err := json.Marshal(o.Route)
			if err != nil {
				t.Fatal(err)
			}
			doc, pointer = b, rest
		}
		got, _ := sallyport.At(doc, pointer)
		if string(got) != c.want {
			t.Errorf("%s %s = %s, want %s", c.name, c.pointer, got, c.want)
		}
	}
	text, _ := wire.String(wire.Member(find(t, d, "deletePet").Definition, "description"))
	if !strings.HasPrefix(text, "DELETE /pets/{id}\n\nDeprecated.\n\nGive a pet away\n\n") {
		t.Errorf("description %q", text)
	}
}

func TestForge(t *testing.T) {
	text, err := os.ReadFile("testdata/forge.json")
	if err != nil {
		t.Fatal(err)
	}
	d, err := Read(text, "https://docs.forge.example/openapi.json", "")
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Operations) != 109 || !d.Foreign || len(d.Warnings) != 0 {
		t.Errorf("%d operations, foreign %t, warnings %q", len(d.Operations), d.Foreign, d.Warnings)
	}
	again, err := Read(text, "https://docs.forge.example/openapi.json", "")
	if err != nil || !slices.EqualFunc(d.Operations, again.Operations, func(a, b Operation) bool {
		return a.Name == b.Name && string(a.Definition) == string(b.Definition)
	}) {
		t.Errorf("the same document reads in two ways, %v", err)
	}
	get := find(t, d, "repos/get")
	for _, name := range []string{"repository", "user", "plan"} {
		if v, ok := sallyport.At(get.Definition, "/outputSchema/$defs/"+name); !ok {
			t.Errorf("no definition of %s: %.300s", name, v)
		}
	}
	labels := find(t, d, "issues/list").Route.Params
	if i := slices.IndexFunc(labels, func(p sallyport.RouteParam) bool { return p.Name == "labels" }); labels[i].Explode {
		t.Error("explode: false is not kept")
	}
}

const head = `{"openapi":"3.1.0","info":{"title":"t","version":"1"},"servers":[{"url":"https://a.example"}],`

// What cannot be used at all, and what the error says.
func TestRefusedDocuments(t *testing.T) {
	one := `"paths":{"/x":{"get":{"responses":{"200":{"description":""}}}}}}`
	for name, c := range map[string]struct{ text, want string }{
		"empty":            {" ", "it is empty"},
		"text":             {"hello", "not an object"},
		"swagger":          {`{"swagger":"2.0"}`, "convert it to OpenAPI 3"},
		"version":          {`{"openapi":"4.0.0"}`, "3.0, 3.1 and 3.2 are read"},
		"no version":       {`{"paths":{}}`, "no member openapi"},
		"no paths":         {head + `"paths":{}}`, "no operations"},
		"twice":            {`{"openapi":"3.1.0","openapi":"3.0.0"}`, "not valid JSON"},
		"not UTF-8":        {"{\"openapi\":\"3.1.0\xff\"}", "not UTF-8"},
		"no server":        {`{"openapi":"3.1.0",` + one, "say where calls go with base"},
		"relative server":  {`{"openapi":"3.1.0","servers":[{"url":"/v1"}],` + one, "say where calls go with base"},
		"variable":         {`{"openapi":"3.1.0","servers":[{"url":"https://{x}.example"}],` + one, "variable without a default"},
		"password":         {`{"openapi":"3.1.0","servers":[{"url":"https://u:p@a.example"}],` + one, "holds a password"},
		"file server":      {`{"openapi":"3.1.0","servers":[{"url":"file:///etc"}],` + one, "say where calls go"},
		"gopher":           {`{"openapi":"3.1.0","servers":[{"url":"gopher://a.example"}],` + one, "must be https://"},
		"dots in base":     {`{"openapi":"3.1.0","servers":[{"url":"https://a.example/a/%2e%2e/b"}],` + one, ". or .."},
		"query in base":    {`{"openapi":"3.1.0","servers":[{"url":"https://a.example/?k=v"}],` + one, "query or a fragment"},
		"yaml twice":       {"openapi: 3.1.0\nopenapi: 3.1.0\n", "valid YAML"},
		"yaml alias":       {"openapi: 3.1.0\na: &x {b: c}\nd: *x\n", "anchors"},
		"yaml tag":         {"openapi: 3.1.0\na: !!binary aGk=\n", "tags"},
		"yaml documents":   {"openapi: 3.1.0\n---\nopenapi: 3.1.0\n", "more than one"},
		"yaml deep":        {"openapi: 3.1.0\na: " + strings.Repeat("[", 500), "nested deeper"},
		"json deep":        {head + `"x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}", "not valid JSON"},
		"yaml bomb":        {"a: &a [x,x,x]\nb: &b [*a,*a,*a]\nopenapi: 3.1.0\n", "anchors"},
		"all of it unused": {head + `"paths":{"/x/..":{"get":{}}}}`, "none of its operations can be used"},
	} {
		if d, err := Read([]byte(c.text), "", ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v; want an error with %q", name, d, err, c.want)
		}
	}
	if _, err := Read([]byte(head+one), "", ""); err != nil {
		t.Errorf("the control: %v", err)
	}
	if _, err := Read([]byte(`{"openapi":"3.1.0",`+one), "", "https://b.example/v2/"); err != nil {
		t.Errorf("with a base: %v", err)
	}
	if _, err := Read([]byte(head+`"x":"`+strings.Repeat("a", MaxBytes)+`",`+one), "", ""); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a document beyond the bound: %v", err)
	}
}

// TO-06: no reference that leaves the document is followed, wherever it stands; a
// text that only looks like one does no harm.
func TestTO06_RemoteReferences(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		refused bool
	}{
		"http":         {`"paths":{"/x":{"get":{"parameters":[{"$ref":"http://127.0.0.1:1/p.json#/a"}]}}}}`, true},
		"file":         {`"paths":{"/x":{"$ref":"file:///etc/passwd"}}}`, true},
		"relative":     {`"paths":{"/x":{"get":{"requestBody":{"content":{"application/json":{"schema":{"$ref":"pet.yaml"}}}}}}}}`, true},
		"unused":       {`"paths":{"/x":{"get":{}}},"components":{"schemas":{"A":{"properties":{"b":{"$ref":"//c.example/d"}}}}}}`, true},
		"under a name": {`"paths":{"/x":{"get":{}}},"components":{"schemas":{"example":{"$ref":"https://c.example/d"}}}}`, true},
		"an example":   {`"paths":{"/x":{"get":{"responses":{"200":{"description":"","content":{"application/json":{"example":{"$ref":"https://c.example"}}}}}}}}}`, false},
		"a property":   {`"paths":{"/x":{"get":{}}},"components":{"schemas":{"A":{"properties":{"$ref":{"type":"string"}}}}}}`, false},
		"local":        {`"paths":{"/x":{"get":{"parameters":[{"$ref":"#/components/parameters/p"}]}}},"components":{"parameters":{"p":{"name":"p","in":"query"}}}}`, false},
	} {
		_, err := Read([]byte(head+c.text), "", "")
		if refused := err != nil && strings.Contains(err.Error(), "only references within the document"); refused != c.refused || !c.refused && err != nil {
			t.Errorf("%s: %v, want refused %t", name, err, c.refused)
		}
	}
}

// An operation that cannot be used is left out, with the reason; the others stay.
func TestLeftOut(t *testing.T) {
	param := func(p string) string { return `{"parameters":[` + p + `],"responses":{}}` }
	for name, c := range map[string]struct{ path, get, want string }{
		"own server":            {"/x", `{"servers":[{"url":"https://evil.example"}]}`, "servers of its own"},
		"dot segment":           {"/a/../b", `{}`, ". or .."},
		"encoded dot segment":   {"/a/%2e%2E/b", `{}`, ". or .."},
		"query in the path":     {"/a?x=1", `{}`, "holds '?'"},
		"fragment":              {"/a#b", `{}`, "holds '#'"},
		"backslash":             {`/a\\b`, `{}`, `holds`},
		"braces":                {"/a/{b", `{}`, "braces"},
		"no slash":              {"a", `{}`, "begin with /"},
		"endless parameter":     {"/x", param(`{"$ref":"#/components/parameters/loop"}`), "refers to itself"},
		"lost reference":        {"/x", param(`{"$ref":"#/components/parameters/none"}`), "leads nowhere"},
		"lost schema":           {"/x", param(`{"name":"a","in":"query","schema":{"$ref":"#/components/schemas/none"}}`), "leads nowhere"},
		"required host":         {"/x", param(`{"name":"Host","in":"header","required":true}`), "not a call's to set"},
		"required override":     {"/x", param(`{"name":"X-HTTP-Method-Override","in":"header","required":true}`), "not a call's to set"},
		"required query method": {"/x", param(`{"name":"_method","in":"query","required":true}`), "another method"},
		"header injection":      {"/x", param(`{"name":"a\r\nb","in":"header","required":true}`), "not a call's to set"},
		"cookie injection":      {"/x", param(`{"name":"a;b","in":"cookie","required":true}`), "no name of a cookie"},
		"unknown place":         {"/x", param(`{"name":"a","in":"body"}`), "path, query, header and cookie"},
		"style":                 {"/x", param(`{"name":"a","in":"query","style":"matrix"}`), "does not fit"},
		"deep schema":           {"/x", param(`{"name":"a","in":"query","schema":` + strings.Repeat(`{"items":`, 70) + `{}` + strings.Repeat(`}`, 70) + `}`), "nested deeper"},
		"dynamic reference":     {"/x", param(`{"name":"a","in":"query","schema":{"$dynamicRef":"#x"}}`), "not followed"},
		"body of no type":       {"/x", `{"requestBody":{"content":{"multipart/mixed":{}}}}`, "no media type"},
		"not a schema":          {"/x", param(`{"name":"a","in":"query","schema":"x"}`), "neither an object"},
	} {
		text := fmt.Sprintf(head+`"paths":{"/good":{"get":{"operationId":"good"}},"%s":{"get":%s}},"components":{"parameters":{"loop":{"$ref":"#/components/parameters/loop"}}}}`, c.path, c.get)
		d, err := Read([]byte(text), "", "")
		switch {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case len(d.Operations) != 1 || d.Operations[0].Name != "good" || len(d.Warnings) != 1 || !strings.Contains(d.Warnings[0], c.want):
			t.Errorf("%s: %d operations, warnings %q; want %q", name, len(d.Operations), d.Warnings, c.want)
		}
	}
}

// What is not a call's to set is no argument, and an optional one costs nothing else.
func TestReservedParametersAreNoArguments(t *testing.T) {
	names := []string{"Host", "Content-Length", "Transfer-Encoding", "Authorization", "Cookie", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X_Forwarded_Proto",
		"X-HTTP-Method-Override", "X-Method-Override", "x-http-method", "Idempotency-Key", "X-Original-URL", "X-Rewrite-URL", "Proxy-Authorization", "Connection", "Accept", "X-Api-Key"}
	var list []string
	for _, n := range names {
		list = append(list, fmt.Sprintf(`{"name":%q,"in":"header","schema":{"type":"string"}}`, n))
	}
	text := head + `"paths":{"/x":{"get":{"parameters":[` + strings.Join(list, ",") + `,{"name":"X-Trace","in":"header"}]}}},
		"components":{"securitySchemes":{"k":{"type":"apiKey","in":"header","name":"x-api-key"}}}}`
	d, err := Read([]byte(text), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if p := d.Operations[0].Route.Params; len(p) != 1 || p[0].Name != "X-Trace" {
		t.Errorf("arguments %+v, want X-Trace only", p)
	}
}

// FO-01, FO-02: names are distinct, whatever the document calls its operations,
// and do not depend on their order.
func TestFO01_Names(t *testing.T) {
	text := head + `"paths":{
		"/a":{"get":{"operationId":"same"},"post":{"operationId":"same"}},
		"/a_b":{"get":{}},"/a/b":{"get":{}},
		"/c/{d}":{"get":{}},
		"/e":{"get":{"operationId":"get_f"}},"/f":{"get":{}}}}`
	d, err := Read([]byte(text), "", "")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range d.Operations {
		names = append(names, o.Name)
	}
	want := []string{"get_a", "post_a", "GET /a/b", "GET /a_b", "get_c_d", "get_f", "GET /f"}
	if slices.Sort(names); !slices.Equal(names, slices.Sorted(slices.Values(want))) {
		t.Errorf("names %q, want %q", names, want)
	}
}

// Parameters of the same name in several places, and names that no model takes,
// are told apart, and each goes back to where it was.
func TestArgumentsAreReversible(t *testing.T) {
	text := head + `"paths":{"/x/{id}":{"post":{"operationId":"x","parameters":[
		{"name":"id","in":"path","required":true},{"name":"id","in":"query"},{"name":"id","in":"header"},{"name":"id","in":"cookie"},
		{"name":"query.id","in":"query"},{"name":"body","in":"query"},{"name":"a[b]","in":"query"},{"name":"a_b","in":"query"},{"name":"日本","in":"query"}],
		"requestBody":{"content":{"application/json":{"schema":{}}}}}}}}`
	d, err := Read([]byte(text), "", "")
	if err != nil {
		t.Fatal(err)
	}
	o := d.Operations[0]
	seen := map[string]bool{o.Route.Body.Argument: true}
	for _, p := range o.Route.Params {
		if _, ok := sallyport.At(o.Definition, "/inputSchema/properties/"+p.Argument); !ok || seen[p.Argument] {
			t.Errorf("argument %q of %s in %s: in the schema %t, taken %t", p.Argument, p.Name, p.In, ok, seen[p.Argument])
		}
		seen[p.Argument] = true
	}
	if len(seen) != 10 {
		t.Errorf("%d arguments: %v", len(seen), seen)
	}
}

// Scalars of YAML: numbers as written, however large; texts where they are quoted;
// keys as texts.
func TestYAMLScalars(t *testing.T) {
	text := "openapi: 3.1\nservers: [{url: 'https://a.example'}]\npaths:\n  /x:\n    get:\n      parameters:\n        - {name: a, in: query, schema: {minimum: -9223372036854776000, " +
		"maximum: 18446744073709551616.50, enum: ['1', 1, 1.0, 0x1F, yes, true, null, 2024-01-01, 1e400]}}\n      responses:\n        200: {description: ok}\n"
	d, err := Read([]byte(text), "", "")
	if err != nil {
		t.Fatal(err)
	}
	got, _ := sallyport.At(d.Operations[0].Definition, "/inputSchema/properties/a")
	if want := `{"enum":["1",1,1.0,31,"yes",true,null,"2024-01-01",1e400],"maximum":18446744073709551616.50,"minimum":-9223372036854776000}`; string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func FuzzRead(f *testing.F) {
	for _, name := range []string{"testdata/shop.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(head + `"paths":{"/x/{a}":{"get":{"parameters":[{"$ref":"#/paths/~1x~1{a}/get/parameters/0"}]}}}}`))
	f.Add([]byte(head + `"paths":{"/x":{"get":{"responses":{"200":{"content":{"application/json":{"schema":{"$ref":"#"}}}}}}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 64<<10 {
			return
		}
		d, err := Read(text, "", "https://a.example/v1")
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, o := range d.Operations {
			if wire.Validate(o.Definition) != nil || seen[o.Name] || !strings.HasPrefix(o.Route.URL, "https://a.example/v1/") {
				t.Errorf("operation %q with the definition %s and route %+v", o.Name, o.Definition, o.Route)
			}
			seen[o.Name] = true
		}
	})
}
