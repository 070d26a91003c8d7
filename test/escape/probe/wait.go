package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

// wait stands for the interpreter of an image that nobody should trust: started
// before it is known for which call, it tries to get out until it is told what to
// run, and then once more. It prints how often it tried, what of it led anywhere,
// and what came back then.
func wait() {
	ready, line := os.NewFile(4, "ready"), os.NewFile(3, "order")
	if _, err := ready.Write([]byte("r")); err != nil {
		fmt.Println("COLD")
		return
	}
	ready.Close()
	taken := make(chan int)
	go func() {
		b, _ := io.ReadAll(line)
		taken <- len(b)
	}()
	tried, led := 0, map[string]bool{}
	for {
		select {
		case n := <-taken:
			if n > 0 {
				fmt.Println("TRIED", tried)
				for what := range led {
					fmt.Println("LED", what)
				}
				fmt.Println("THEN", ask("allowed.test"), ask("evil.test"))
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
		tried++
		for _, a := range [][2]string{{"tcp", "93.184.216.34:80"}, {"tcp", "169.254.169.254:80"}, {"unix", "/srv/way"}, {"unix", "@canary"}} {
			if c, err := net.DialTimeout(a[0], a[1], patience); err == nil {
				led[a[1]] = true
				c.Close()
			}
		}
		for _, host := range []string{"allowed.test", "evil.test"} {
			if answer := ask(host); answer != "503 denied; reason=broker_gone" {
				led[host+": "+answer] = true
			}
		}
	}
}

// ask asks the proxy for a host, and tells what it says.
func ask(host string) string {
	c, err := net.DialTimeout("tcp", "127.0.0.1:3128", patience)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(6 * patience))
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: host, Path: "/"}, Host: host}
	if err := r.WriteProxy(c); err != nil {
		return err.Error()
	}
	got, err := http.ReadResponse(bufio.NewReader(c), r)
	if err != nil {
		return err.Error()
	}
	defer got.Body.Close()
	if denied := got.Header.Get("Sallyport-Egress"); denied != "" {
		return fmt.Sprint(got.StatusCode, " ", denied)
	}
	return fmt.Sprint(got.StatusCode)
}
