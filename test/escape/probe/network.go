package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

const patience = 3 * time.Second

// dial tries to reach each target, "NETWORK!ADDRESS", and scans ports: a
// target "scan!HOST:FROM-TO". It prints what answered.
func dial(targets []string) {
	for _, t := range targets {
		network, addr, _ := strings.Cut(t, "!")
		switch network {
		case "scan":
			scan(addr)
		case "dns":
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			if a, err := net.DefaultResolver.LookupHost(ctx, addr); err == nil {
				fmt.Println("REACHED", t, a)
			}
			cancel()
		default:
			if reached(network, addr) {
				fmt.Println("REACHED", t)
			}
		}
	}
	raw()
	interfaces, _ := net.Interfaces()
	for _, i := range interfaces {
		fmt.Println("INTERFACE", i.Name)
	}
}

// reached says whether an answer came: a connection is not enough for UDP.
func reached(network, addr string) bool {
	c, err := net.DialTimeout(network, addr, patience)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("probe\n")); err != nil {
		return false
	}
	n, _ := c.Read(make([]byte, 16))
	return n > 0
}

// scan connects to each port of a range. A listener of its own, at the last port
// if that is free, shows that the scan finds what is there.
func scan(target string) {
	host, ports, err := net.SplitHostPort(target)
	var from, to int
	if _, scanErr := fmt.Sscanf(ports, "%d-%d", &from, &to); err != nil || scanErr != nil {
		fmt.Println("ERROR", target)
		return
	}
	own := 0
	if l, err := net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(to))); err == nil {
		defer l.Close()
		own = to
	}
	var wg sync.WaitGroup
	next := make(chan int)
	for range 32 {
		wg.Go(func() {
			for p := range next {
				c, err := net.DialTimeout("tcp", net.JoinHostPort(host, fmt.Sprint(p)), patience)
				if err != nil {
					continue
				}
				c.Close()
				if p == own {
					fmt.Println("SCAN-OWN", host)
				} else {
					fmt.Println("REACHED", net.JoinHostPort(host, fmt.Sprint(p)))
				}
			}
		})
	}
	for p := from; p <= to; p++ {
		next <- p
	}
	close(next)
	wg.Wait()
}

// raw tries sockets that go around TCP and UDP.
func raw() {
	for _, s := range []struct {
		name                string
		domain, kind, proto int
	}{
		{"icmp", syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_ICMP},
		{"raw", syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_RAW},
		{"packet", syscall.AF_PACKET, syscall.SOCK_RAW, 0x0300},
		{"vsock", 40, syscall.SOCK_STREAM, 0},
	} {
		if fd, err := syscall.Socket(s.domain, s.kind, s.proto); err == nil {
			fmt.Println("SOCKET", s.name)
			syscall.Close(fd)
		}
	}
}

// listen is the canary: it answers on every address of the host, by TCP, UDP
// and an abstract unix socket, and prints each contact, until stdin ends.
func listen(name string) {
	tcp, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		tcp, err = net.Listen("tcp", "0.0.0.0:0")
	}
	fatal(err)
	port := tcp.Addr().(*net.TCPAddr).Port
	udp, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
	fatal(err)
	unix, err := net.Listen("unix", "@"+name)
	fatal(err)
	go answer(tcp, "tcp")
	go answer(unix, "unix")
	go func() {
		buf := make([]byte, 64)
		for {
			_, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			fmt.Println("CONTACT udp")
			_, _ = udp.WriteTo([]byte("canary\n"), from)
		}
	}()
	fmt.Println("READY", port)
	_, _ = os.Stdin.Read(make([]byte, 1))
}

func answer(l net.Listener, kind string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Println("CONTACT", kind)
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			_, _ = c.Write([]byte("HTTP/1.0 200 OK\r\n\r\ncanary\n"))
			_, _ = c.Read(make([]byte, 64))
		}()
	}
}

func fatal(err error) {
	if err != nil {
		fmt.Println("ERROR", err)
		os.Exit(1)
	}
}
