package config

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// Every setting stands in the table of docs/operations.md, under its whole name.
func TestEverySettingIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	names := settings(reflect.TypeFor[Config](), "")
	for _, name := range names {
		if !strings.Contains(string(text), "\n| `"+name+"` |") {
			t.Errorf("docs/operations.md has no row for %s", name)
		}
	}
	if rows := strings.Count(string(text), "\n| `"); len(names) < 80 || rows < len(names) {
		t.Errorf("%d settings, %d rows: the search is broken", len(names), rows)
	}
}

// settings are the names of what can be written, NAME where the name is free.
func settings(typ reflect.Type, path string) (names []string) {
	switch {
	case typ.Kind() == reflect.Map && typ.Elem().Kind() == reflect.Struct:
		return settings(typ.Elem(), path+".NAME")
	case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Struct:
		return settings(typ.Elem(), path+"[]")
	case typ.Kind() != reflect.Struct:
		return []string{path}
	}
	for i := range typ.NumField() {
		key, _, _ := strings.Cut(typ.Field(i).Tag.Get("yaml"), ",")
		if key != "-" {
			names = append(names, settings(typ.Field(i).Type, strings.TrimPrefix(path+"."+key, "."))...)
		}
	}
	return names
}
