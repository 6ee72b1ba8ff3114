// Package slidegate asks Slidegate about each request: http.ListenAndServe(address, limiter.Limit(mux)).
package slidegate

import (
	"bytes"
	"context"
	"encoding/json"
	"log"
	"net/http"
)

// Client waits 100 ms for an answer. Its Transport should keep as many idle connections as there are requests at once.
var Client = http.Client{Timeout: 100e6}

// Limiter asks at URL, with Token if Slidegate wants one. Without an answer requests pass unless it is Closed.
type Limiter struct {
	URL, Token string
	Closed     bool
	Describe   func(r *http.Request, question map[string]any) // Adds client, user, plan, cost, refundable (true).
}

// Limit refuses what Slidegate refuses.
func (l *Limiter) Limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question := map[string]any{"method": r.Method, "path": r.URL.RequestURI(), "headers": r.Header}
		l.Describe(r, question)
		var answer struct {
			Verdict, ID, Body, Detail string
			Status                    int
			Headers                   map[string]string
		}
		if err := l.Post("/v1/decide", question, &answer); answer.Verdict == "" && answer.Status != 400 && answer.Status != 413 {
			log.Printf("slidegate gave no decision: %v %s", err, answer.Detail) // 400 and 413 any client can cause.
			answer.Status, answer.Verdict = 503, map[bool]string{false: "allow"}[l.Closed]
		}
		for name, value := range answer.Headers {
			w.Header().Set(name, value)
		}
		if answer.Verdict != "allow" {
			w.WriteHeader(answer.Status)
			w.Write([]byte(answer.Body))
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), l, answer.ID)))
	})
}

// Post sends JSON, such as a refund: limiter.Post("/v1/refund", map[string]any{"id": r.Context().Value(limiter)}, nil).
func (l *Limiter) Post(path string, body, answer any) error {
	text, _ := json.Marshal(body)
	request, _ := http.NewRequest("POST", l.URL+path, bytes.NewReader(text))
	request.Header = http.Header{"Content-Type": {"application/json"}, "X-Slidegate-Token": {l.Token}}
	response, err := Client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(answer)
}
