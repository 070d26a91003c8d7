package mcpserver_test

import (
	"fmt"
	"strings"
	"testing"
)

// TO-14: what a client sends once and gets with each of many messages is short.
func TestTO14_WhatComesBackIsShort(t *testing.T) {
	d := newDoor(t, nil)
	long := strings.Repeat("x", 2000)
	const tooLong = `400 {"jsonrpc":"2.0","error":{"code":-32600,"message":"invalid request: the id is longer than 1024 bytes"}}`
	for _, tt := range []struct{ id, token, want string }{
		{`"` + long + `"`, `1`, tooLong},
		{strings.Repeat("9", 2000), `1`, tooLong},
		{"1", `"` + long + `"`, `200 {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"invalid params: progressToken must be a string or an integer of at most 1024 bytes"}}`},
	} {
		body, headers := modern(tt.id, "tools/call", `"name":"echo"`)
		res, said := d.post(strings.Replace(body, `"_meta":{`, `"_meta":{"progressToken":`+tt.token+`,`, 1), headers...)
		if got := fmt.Sprint(res.StatusCode, " ", said); got != tt.want {
			t.Errorf("%.40s, %.40s: %.300s", tt.id, tt.token, got)
		}
	}
	if d.gw.count() != 0 {
		t.Error("a call came through")
	}
	body, headers := modern(`"`+long[:1000]+`"`, "tools/call", `"name":"echo"`)
	body = strings.Replace(body, `"_meta":{`, `"_meta":{"progressToken":"`+long[:1000]+`",`, 1)
	if res, said := d.post(body, headers...); res.StatusCode != 200 || !strings.Contains(said, long[:1000]) || !strings.Contains(said, "result") {
		t.Errorf("the control: %d %.200s", res.StatusCode, said)
	}
}
