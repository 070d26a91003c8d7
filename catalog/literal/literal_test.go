package literal

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"sallyport.dev/sallyport"
)

// FuzzDecode holds the decoder against a general one.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"a":[1,-0.5e+3,"x\"\\u00e9",null,true,false,{}],"b":{"":[]}}`))
	f.Add([]byte(`{"a":[tru]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		canonical, err := sallyport.Canonical(raw)
		if err != nil {
			_, _ = Decode(raw) // must not panic or hang
			return
		}
		got, wrong := Decode(canonical)
		want, err := jsonschema.UnmarshalJSON(bytes.NewReader(canonical))
		if errors.Is(wrong, errBroken) {
			t.Fatalf("%s: %v", canonical, wrong)
		}
		if wrong == nil && (err != nil || !reflect.DeepEqual(got, want)) {
			t.Fatalf("%s: got %#v, want %#v, %v", canonical, got, want, err)
		}
	})
}
