package redact_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

var corpus = map[string]string{
	"prose": strings.Repeat("The order was shipped on Monday and the customer was told by phone. ", 15),
	"table": strings.Repeat("1042 | Jane Roe | 2026-11-29 | shipped | 149.90 EUR | Zürich\n", 17),
	"code":  strings.Repeat("func (s *Store) Get(key string) (string, error) {\n\tv, ok := s.data[key]\n\tif !ok {\n\t\treturn \"\", ErrNotFound\n\t}\n\treturn v, nil\n}\n", 8),
	"json":  strings.Repeat(`{"id":9007199254740993,"name":"Jane","key":"a1","tags":["x","y"],"at":"2026-11-29T19:00:26Z"},`, 11),
}

func BenchmarkResult(b *testing.B) {
	if err := all.Warm(); err != nil {
		b.Fatal(err)
	}
	in := map[string]json.RawMessage{
		"structured": json.RawMessage(`{"content":[],"structuredContent":{"rows":[` + strings.TrimSuffix(corpus["json"], ",") + `]}}`),
		"secret":     text(corpus["prose"] + " postgres://user:password@host/db"),
		"prose10K":   text(strings.Repeat(corpus["prose"], 10)),
		"json10K":    text(strings.Repeat(corpus["json"], 10)),
		"empty":      text(""),
	}
	for name, s := range corpus {
		in[name] = text(s)
	}
	for name, content := range in {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(content)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, _, err := all.Result("", sallyport.Tool{}, sallyport.Output{Content: content}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)*1024/float64(len(content)), "µs/KB")
		})
	}
}

func BenchmarkResultParallel(b *testing.B) {
	content := text(corpus["json"])
	b.SetBytes(int64(len(content)))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, _, _, err := all.Result("", sallyport.Tool{}, sallyport.Output{Content: content}); err != nil {
				b.Error(err)
			}
		}
	})
}
