// A reverse proxy of Go's standard library: proxy LISTEN UPSTREAM.
package main

import (
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

func main() {
	upstream, err := url.Parse(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(os.Args[1], httputil.NewSingleHostReverseProxy(upstream)))
}
