package slidegate

import (
	"fmt"
	"log"
	"net/http"
	"net/url"
	"time"
)

// Options say how to reach Slidegate, and what to do if it does not answer. The zero value asks
// http://127.0.0.1:8081 and fails open.
type Options struct {
	// URL is the address of the decision API. Default: http://127.0.0.1:8081.
	URL string
	// Token is the token of the decision API, if it asks for one.
	Token string
	// Timeout is how long to wait for an answer. Default: 100 ms.
	Timeout time.Duration
	// Fail says whether requests pass without an answer. Default: FailOpen.
	Fail Fail
	// Describe adds what the application knows about a request, and can change what the Limiter has read from it.
	// Behind a load balancer, it has to set Client.
	Describe func(*http.Request, *Question)
	// Logf receives a line for each missing decision and each refused question. Default: [log.Printf].
	Logf func(format string, arguments ...any)
	// Transport sends the questions. Default: a copy of [http.DefaultTransport] that keeps 100 idle
	// connections.
	Transport http.RoundTripper
}

// Fail says what happens to requests if Slidegate does not answer.
type Fail int

const (
	// FailOpen lets requests pass.
	FailOpen Fail = iota
	// FailClosed answers them with 503.
	FailClosed
)

const (
	defaultURL     = "http://127.0.0.1:8081"
	defaultTimeout = 100 * time.Millisecond
)

func newClient(options Options) (client, error) {
	if options.URL == "" {
		options.URL = defaultURL
	}
	base, err := url.Parse(options.URL)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return client{}, fmt.Errorf("slidegate: URL must be an http or https URL, not %q", options.URL)
	}
	if options.Timeout < 0 {
		return client{}, fmt.Errorf("slidegate: Timeout must not be negative: %v", options.Timeout)
	}
	if options.Timeout == 0 {
		options.Timeout = defaultTimeout
	}
	if options.Fail != FailOpen && options.Fail != FailClosed {
		return client{}, fmt.Errorf("slidegate: Fail must be FailOpen or FailClosed, not %d", options.Fail)
	}
	if options.Logf == nil {
		options.Logf = log.Printf
	}
	if options.Transport == nil {
		options.Transport = defaultTransport()
	}
	return client{
		decideURL: base.JoinPath("v1/decide").String(),
		settleURL: base.JoinPath("v1/settle").String(),
		token:     options.Token,
		fail:      options.Fail,
		logf:      options.Logf,
		http:      &http.Client{Timeout: options.Timeout, Transport: options.Transport},
	}, nil
}

// As many idle connections as there are requests at once; the default of two would open one for most requests.
func defaultTransport() http.RoundTripper {
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport // The application has replaced it.
	}
	transport = transport.Clone()
	transport.MaxIdleConnsPerHost = 100
	return transport
}
