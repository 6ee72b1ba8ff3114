// Package slidegate asks Slidegate about each request: http.ListenAndServe(address, limiter.Limit(mux)).
package slidegate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log"
	"net/http"
)

// Client waits 100 ms for an answer. Its Transport should keep as many idle connections as there are requests at once.
var Client = http.Client{Timeout: 100e6}

// Limiter asks at URL, with Token if Slidegate wants one. Without an answer requests pass unless it is Closed.
type Limiter struct {
	URL, Token string
	Closed     bool
	Describe   func(r *http.Request, question map[string]any) // Adds client, user, plan, cost, hold, refundable (true).
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
		if err := l.post("/v1/decide", question, &answer); answer.Verdict == "" && answer.Status != 400 && answer.Status != 413 {
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

// Settle says what a request has cost whose question has a hold or is refundable. With 0, all of it is given back.
func (l *Limiter) Settle(r *http.Request, units uint32) error {
	var answer struct{ Detail string }
	err := l.post("/v1/settle", map[string]any{"id": r.Context().Value(l), "units": units}, &answer)
	if err == nil && answer.Detail != "" {
		err = errors.New(answer.Detail)
	}
	return err
}

func (l *Limiter) post(path string, body, answer any) error {
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
