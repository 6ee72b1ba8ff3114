// Package slidegate asks Slidegate about each request of an http.Handler.
package slidegate

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"
)

// Options say where Slidegate is and what it is told of a request.
type Options struct {
	URL    string                       // where Slidegate listens for decisions
	Token  string                       // the token of that listener, if it has one
	Asker  *http.Client                 // its Timeout is how long to wait for an answer
	Open   bool                         // whether requests pass if there is no answer
	Client func(r *http.Request) string // the client's address; that of the connection if nil
	User   func(r *http.Request) string // the authenticated user's id, or ""
	Plan   func(r *http.Request) string // the plan that the user has, or ""
}

type decision struct {
	Verdict, Body string
	Status        int
	Headers       map[string]string
}

// Limit refuses what Slidegate refuses.
func Limit(next http.Handler, o Options) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, ok := o.ask(r)
		if !ok {
			d = map[bool]decision{true: {Verdict: "allow"}, false: {Status: http.StatusServiceUnavailable}}[o.Open]
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

func (o Options) ask(r *http.Request) (d decision, ok bool) {
	question := map[string]any{"method": r.Method, "path": r.URL.RequestURI(), "headers": r.Header}
	client := BehindBalancer()
	if o.Client != nil {
		client = o.Client
	}
	for member, value := range map[string]func(*http.Request) string{"client": client, "user": o.User, "plan": o.Plan} {
		if value != nil && value(r) != "" {
			question[member] = value(r)
		}
	}
	body, _ := json.Marshal(question)
	ask, err := http.NewRequestWithContext(r.Context(), "POST", o.URL+"/v1/decide", bytes.NewReader(body))
	if err != nil {
		return d, false
	}
	ask.Header.Set("Content-Type", "application/json")
	if o.Token != "" {
		ask.Header.Set("Authorization", "Bearer "+o.Token)
	}
	answer, err := o.Asker.Do(ask)
	if err != nil {
		undecided(err.Error())
		return d, false
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if json.Unmarshal(text, &d) == nil && d.Verdict != "" {
		return d, true
	}
	// The token may be wrong, or the question, or the request itself: that one may not pass.
	undecided(answer.Status + " " + string(text))
	return decision{Status: answer.StatusCode, Body: "Bad Request"}, answer.StatusCode == http.StatusBadRequest
}

var told atomic.Int64

// undecided logs, once a minute, why there was no decision: limits that are off are no secret.
func undecided(cause string) {
	if now, last := time.Now().Unix(), told.Load(); now-last >= 60 && told.CompareAndSwap(last, now) {
		log.Printf("slidegate gave no decision: %s", cause)
	}
}

// BehindBalancer finds the client's address behind balancers in these networks: from the right of
// X-Forwarded-For, the first address that is not theirs. What anybody else sends there is not believed.
func BehindBalancer(trusted ...netip.Prefix) func(r *http.Request) string {
	return func(r *http.Request) string {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			return ""
		}
		hop := peer.Addr().Unmap()
		entries := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		for i := len(entries) - 1; i >= 0 && contains(trusted, hop); i-- {
			next, err := netip.ParseAddr(strings.TrimSpace(entries[i]))
			if err != nil {
				break
			}
			hop = next.Unmap()
		}
		return hop.String()
	}
}

func contains(networks []netip.Prefix, address netip.Addr) bool {
	for _, network := range networks {
		if network.Contains(address) {
			return true
		}
	}
	return false
}
