package hosts_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"

	"sallyport.dev/sallyport/mcpserver/hosts"
)

func ExamplePolicy() {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") })
	s := httptest.NewServer(hosts.Policy{}.Guard(next))
	defer s.Close()
	req, _ := http.NewRequestWithContext(context.Background(), "GET", s.URL, nil)
	req.Host = "attacker.test"
	res, err := s.Client().Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer res.Body.Close()
	fmt.Println(strconv.Itoa(res.StatusCode))
	// Output: 403
}
