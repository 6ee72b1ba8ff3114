// The same application failing open and failing closed, on the ports given: how package slidegate is used, and what
// its tests run.
package main

import (
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"example.com/slidegate"
)

func main() {
	timeout, err := time.ParseDuration(os.Getenv("SLIDEGATE_TIMEOUT_MS") + "ms")
	if err != nil {
		log.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 100
	slidegate.Client = http.Client{Timeout: timeout, Transport: transport}
	for i, port := range os.Args[1:] {
		limiter := &slidegate.Limiter{
			URL:      os.Getenv("SLIDEGATE_URL"),
			Token:    os.Getenv("SLIDEGATE_TOKEN"),
			Closed:   i == 1,
			Describe: describe,
		}
		mux := http.NewServeMux()
		mux.HandleFunc("/reports", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })
		mux.HandleFunc("/metered", func(w http.ResponseWriter, r *http.Request) {
			if err := limiter.Settle(r, 1); err != nil {
				log.Print(err)
			}
			io.WriteString(w, "hello")
		})
		mux.HandleFunc("/broken", func(w http.ResponseWriter, r *http.Request) {
			limiter.Settle(r, 0)
			w.WriteHeader(http.StatusInternalServerError)
		})
		go func(port string) { log.Fatal(http.ListenAndServe("127.0.0.1:"+port, limiter.Limit(mux))) }(port)
	}
	select {}
}

// describe stands for an application that knows its users.
func describe(r *http.Request, question map[string]any) {
	question["client"], _, _ = net.SplitHostPort(r.RemoteAddr)
	question["user"] = r.Header.Get("X-User")
	question["plan"] = "pro"
	if r.URL.Path == "/metered" {
		question["hold"] = 2
	} else {
		question["refundable"] = true
	}
}
