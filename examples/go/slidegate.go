package slidegate

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
)

type decision struct {
	Verdict, Body string
	Status        int
	Headers       map[string]string
}

// Limit refuses what Slidegate refuses. If it gives no answer in the asker's Timeout, requests pass if open.
func Limit(next http.Handler, url string, asker *http.Client, open bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var d decision
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		question, _ := json.Marshal(map[string]any{"method": r.Method, "path": r.URL.RequestURI(), "headers": r.Header, "client": host})
		if answer, err := asker.Post(url+"/v1/decide", "application/json", bytes.NewReader(question)); err == nil {
			json.NewDecoder(answer.Body).Decode(&d)
			answer.Body.Close()
		}
		if d.Verdict == "" && d.Status == 0 { // What cannot be decided, such as a malformed request, has a status.
			d = map[bool]decision{true: {Verdict: "allow"}, false: {Status: 503}}[open]
		}
		for name, value := range d.Headers {
			w.Header().Set(name, value)
		}
		if d.Verdict == "allow" {
			next.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(d.Status)
		w.Write([]byte(d.Body))
	})
}
