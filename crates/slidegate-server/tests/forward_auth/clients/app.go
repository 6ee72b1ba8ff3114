// The same application failing open and failing closed, on the ports given.
package main

import (
	"io"
	"log"
	"net/http"
	"os"
	"time"

	slidegate "github.com/slidegate/slidegate/clients/go"
)

func main() {
	timeout, err := time.ParseDuration(os.Getenv("SLIDEGATE_TIMEOUT_MS") + "ms")
	if err != nil {
		log.Fatal(err)
	}
	for i, port := range os.Args[1:] {
		limiter, err := slidegate.New(slidegate.Options{
			URL:      os.Getenv("SLIDEGATE_URL"),
			Token:    os.Getenv("SLIDEGATE_TOKEN"),
			Timeout:  timeout,
			Fail:     []slidegate.Fail{slidegate.FailOpen, slidegate.FailClosed}[i],
			Describe: describe,
		})
		if err != nil {
			log.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.HandleFunc("/reports", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })
		mux.HandleFunc("/metered", func(w http.ResponseWriter, r *http.Request) {
			if err := slidegate.FromContext(r.Context()).Settle(1); err != nil {
				log.Print(err)
			}
			io.WriteString(w, "hello")
		})
		mux.HandleFunc("/broken", func(w http.ResponseWriter, r *http.Request) {
			if err := slidegate.FromContext(r.Context()).Refund(); err != nil {
				log.Print(err)
			}
			w.WriteHeader(http.StatusInternalServerError)
		})
		go func(port string) { log.Fatal(http.ListenAndServe("127.0.0.1:"+port, limiter.Middleware(mux))) }(port)
	}
	select {}
}

// describe stands for an application that knows its users.
func describe(r *http.Request, question *slidegate.Question) {
	question.User = r.Header.Get("X-User")
	question.Plan = "pro"
	if r.URL.Path == "/metered" {
		question.Hold = 2
	} else {
		question.Refundable = true
	}
}
