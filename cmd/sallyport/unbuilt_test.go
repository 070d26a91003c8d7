package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/config"
)

func TestSettingsThatDoNothingAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sallyport.yaml")
	for text, setting := range map[string]string{
		"data: elsewhere":                                                     "data",
		"agents: {reporter: {roles: [reader]}}":                               "",
		"egress: {private: [10.1.0.0/16]}":                                    "",
		"egress: {private: [10.1.0.0/16]}\nsandbox: {host: /run/host.sock}":   "", // of HTTP APIs
		"secrets: {keys: elsewhere}":                                          "secrets.keys",
		"sandbox: {host: 'sandbox.example:7460'}":                             "sandbox.host",
		"telemetry: {endpoint: 'http://127.0.0.1:4318'}":                      "telemetry.endpoint",
		"telemetry: {log: debug}":                                             "",
		"telemetry: {sample: 0.5}":                                            "telemetry.sample",
		"servers: {a: {command: /bin/true, egress: ['api.example:443']}}":     "",
		"servers: {a: {command: /bin/true}}\nsandbox: {host: /run/host.sock}": "",
		config.Starter(config.Default().Store):                                "",
	} {
		c, err := config.Parse(file, []byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		err = unbuilt(c)
		if setting == "" {
			if err != nil {
				t.Errorf("%.60s: %v", text, err)
			}
			continue
		}
		e, ok := errors.AsType[*sallyport.Error](err)
		if !ok || e.Code != sallyport.Invalid || !strings.Contains(e.Message, ": "+setting+" is not built in") || !strings.Contains(e.Hint, setting+": ") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
