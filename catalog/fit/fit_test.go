package fit

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// FO-28, FO-32: what a strict client would refuse a whole list for is left out, or
// written so that it takes it; all else stays byte for byte.
func TestFO28WhatStrictClientsRefuse(t *testing.T) {
	type table = map[string]string
	for _, shelf := range []struct {
		fit   func(json.RawMessage) (json.RawMessage, []string)
		cases table
	}{
		{Tool, table{
			`{"name":"a" , "inputSchema":{"type":"object","properties":{"x":{}},"x-own":null},"x-own":null,"annotations":{"readOnlyHint":true,"own":1}}`: "",
			`{"inputSchema":{}}`: `{"inputSchema":{"type":"object"}}`,
			`{"inputSchema":{"type":["null","object"],"properties":null,"required":null}}`:                                        `{"inputSchema":{"type":"object"}}`,
			`{"inputSchema":{"type":"object","properties":{"a":true,"b":false,"type":true}}}`:                                     `{"inputSchema":{"type":"object","properties":{"a":{},"b":{"not":{}},"type":{}}}}`,
			`{"inputSchema":{"type":"object","properties":{"a":{"items":{"required":null},"default":null}}}}`:                     `{"inputSchema":{"type":"object","properties":{"a":{"items":{},"default":null}}}}`,
			`{"title":null,"description":null,"_meta":null,"icons":null,"annotations":null,"outputSchema":null,"execution":null}`: `{}`,
			`{"annotations":{"title":5,"readOnlyHint":"true","idempotentHint":false}}`:                                            `{"annotations":{"idempotentHint":false}}`,
			`{"icons":[{"src":"a","sizes":"1x1","theme":"blue"},{"mimeType":"b"},7]}`:                                             `{"icons":[{"src":"a"}]}`,
			`{"execution":{"taskSupport":"maybe"},"_meta":[],"outputSchema":{"type":"array","items":true}}`:                       `{"execution":{},"outputSchema":{"type":"array","items":true}}`,
		}},
		{Resource, table{
			`{"uri":"x:a","name":"n","size":9007199254740992,"annotations":{"audience":["user"],"priority":0.5,"lastModified":"2026-01-02T03:04:05+01:00"}}`: "",
			`{"uri":"x:a"}`:             `{"uri":"x:a","name":"x:a"}`,
			`{"uri":"x:a","name":null}`: `{"uri":"x:a","name":"x:a"}`,
			`{"uri":"x:a","name":"n","size":"12","mimeType":null,"annotations":{"audience":["user","robot"],"priority":5,"lastModified":"now"}}`: `{"uri":"x:a","name":"n","annotations":{"audience":["user"]}}`,
			`{"uri":"x:a","name":"n","size":12.0}`: `{"uri":"x:a","name":"n","size":12}`,
			`{"uri":"x:a","name":"n","size":1e3}`:  `{"uri":"x:a","name":"n"}`,
		}},
		{Template, table{`{"uriTemplate":"x:{a}","description":null}`: `{"uriTemplate":"x:{a}","name":"x:{a}"}`}},
		{Prompt, table{
			`{"name":"p","arguments":[{"name":"a","required":true}]}`:                                              "",
			`{"name":"p","arguments":null}`:                                                                        `{"name":"p"}`,
			`{"name":"p","arguments":[{"name":"a","required":"yes","description":null},{"description":"b"},null]}`: `{"name":"p","arguments":[{"name":"a"}]}`,
		}},
	} {
		for raw, want := range shelf.cases {
			got, changed := shelf.fit(json.RawMessage(raw))
			if want == "" {
				want = raw
			}
			if string(got) != want {
				t.Errorf("%s\nbecomes %s\nwant    %s", raw, got, want)
			}
			if again, more := shelf.fit(got); string(again) != string(got) || len(more) > 0 {
				t.Errorf("%s does not stay: %s, %v", got, again, more)
			}
			if strings.Contains(raw, `"readOnlyHint":"true"`) && !slices.Contains(changed, "annotations.readOnlyHint") {
				t.Errorf("%s: what changed is %v", raw, changed)
			}
		}
	}
}
