// Package slidegate is a net/http middleware that asks Slidegate, an exact sliding-window rate limiter, about every
// request.
//
// It adds the rate limit headers to the response, and answers refused requests itself. Slidegate has the policies; the
// application adds the user and the plan in [Options.Describe].
package slidegate

import (
	"context"
	"net"
	"net/http"
)

// A Limiter asks one Slidegate about requests. It can be used by several goroutines at once.
type Limiter struct {
	client   client
	describe func(*http.Request, *Question)
}

// New returns a Limiter. The error names the option that is invalid.
func New(options Options) (*Limiter, error) {
	client, err := newClient(options)
	if err != nil {
		return nil, err
	}
	return &Limiter{client, options.Describe}, nil
}

// Middleware returns a handler that passes allowed requests to next, which finds the decision with [FromContext].
func (l *Limiter) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question := Question{Method: r.Method, Path: r.URL.RequestURI(), Headers: r.Header, Client: host(r.RemoteAddr)}
		if l.describe != nil {
			l.describe(r, &question)
		}
		decision := l.Decide(question)
		for name, value := range decision.Headers {
			w.Header().Set(name, value)
		}
		if decision.Allowed() {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, decision)))
			return
		}
		w.WriteHeader(decision.Status)
		_, _ = w.Write([]byte(decision.Body)) // The client may be gone.
	})
}

// Decide asks about anything. If Slidegate does not answer, the decision depends on [Options.Fail].
func (l *Limiter) Decide(question Question) *Decision {
	return l.client.decide(question)
}

type contextKey struct{}

// FromContext returns the decision about a request, by the request's context, or nil if it did not pass a Limiter.
func FromContext(ctx context.Context) *Decision {
	decision, _ := ctx.Value(contextKey{}).(*Decision)
	return decision
}

// host returns the address of a client without its port, or nothing on a Unix socket.
func host(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	return host
}
