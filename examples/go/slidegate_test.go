package slidegate

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

// Needs Slidegate at SLIDEGATE_URL with a policy of 2/min for POST /login and one for GET /reports by
// plan, of 3/min for `pro` and of 1/min for others, and nobody at NOBODY_URL.
func options() Options {
	return Options{URL: os.Getenv("SLIDEGATE_URL"), Asker: &http.Client{Timeout: 5 * time.Second}}
}

var balancers = netip.MustParsePrefix("10.0.0.0/24")

func send(limited http.Handler, method, path, peer string, headers ...string) *http.Response {
	request := httptest.NewRequest(method, path, strings.NewReader(""))
	request.RemoteAddr = peer
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	limited.ServeHTTP(recorder, request)
	return recorder.Result()
}

func login(limited http.Handler) *http.Response {
	return send(limited, "POST", "/login?x", "203.0.113.9:1234")
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, "hello")
})

func TestClientsAreLimitedAndToldWhereTheyStand(t *testing.T) {
	limited := Limit(hello, options())
	for _, remaining := range []string{"1", "0"} {
		allowed := login(limited)
		if allowed.StatusCode != 200 || allowed.Header.Get("X-RateLimit-Remaining") != remaining {
			t.Fatalf("%d, remaining %q", allowed.StatusCode, allowed.Header.Get("X-RateLimit-Remaining"))
		}
	}
	refused := login(limited)
	body, _ := io.ReadAll(refused.Body)
	if refused.StatusCode != 429 || refused.Header.Get("Retry-After") == "" || len(body) == 0 {
		t.Fatalf("%d %v %s", refused.StatusCode, refused.Header, body)
	}
}

func TestClientsBehindABalancerAreToldApartAndCannotPretend(t *testing.T) {
	o := options()
	o.Client = BehindBalancer(balancers)
	limited := Limit(hello, o)
	for _, step := range []struct {
		peer, forwarded string
		status          int
	}{
		{"10.0.0.5:1234", "203.0.113.21", 200},
		{"10.0.0.6:1234", "198.51.100.1, 203.0.113.21", 200},
		{"10.0.0.5:1234", "198.51.100.2, 203.0.113.21, 10.0.0.7", 429},
		{"[::ffff:10.0.0.5]:1234", "::ffff:203.0.113.21", 429},
		{"10.0.0.5:1234", "203.0.113.22", 200},
		{"203.0.113.21:1234", "203.0.113.99", 429},
		{"203.0.113.23:1234", "203.0.113.22", 200},
		{"203.0.113.23:1234", "203.0.113.21", 200},
		{"203.0.113.23:1234", "10.0.0.5", 429},
	} {
		got := send(limited, "POST", "/login", step.peer, "X-Forwarded-For", step.forwarded)
		if got.StatusCode != step.status {
			t.Fatalf("%+v: %d", step, got.StatusCode)
		}
	}
	two := []string{"X-Forwarded-For", "203.0.113.21", "X-Forwarded-For", "203.0.113.24"}
	if got := send(limited, "POST", "/login", "10.0.0.5:1", two...); got.StatusCode != 200 {
		t.Fatalf("the last line is the balancer's: %d", got.StatusCode)
	}
}

func TestUsersHaveWhatTheirPlanSays(t *testing.T) {
	o := options()
	o.Token = "unused on this machine"
	o.User = func(r *http.Request) string { id, _, _ := r.BasicAuth(); return id }
	o.Plan = func(r *http.Request) string { return map[string]string{"go-ann": "pro"}[o.User(r)] }
	limited := Limit(hello, o)
	for _, user := range []struct {
		authorization string
		allowed       int
	}{
		{"Basic Z28tYW5uOng=", 3}, // go-ann:x
		{"Basic Z28tYm9iOng=", 1}, // go-bob:x
	} {
		allowed := 0
		for i := 0; i < 5; i++ {
			// Wherever the user is.
			peer := "203.0.113." + string(rune('1'+i)) + ":1"
			if send(limited, "GET", "/reports", peer, "Authorization", user.authorization).StatusCode == 200 {
				allowed++
			}
		}
		if allowed != user.allowed {
			t.Fatalf("%+v: %d", user, allowed)
		}
	}
}

func TestAWrongTokenDoesAsToldAndIsLogged(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, `{"status":401,"detail":"wrong token"}`, http.StatusUnauthorized)
	}))
	defer server.Close()
	var logged strings.Builder
	log.SetOutput(&logged)
	defer log.SetOutput(os.Stderr)
	told.Store(0)
	for open, status := range map[bool]int{true: 200, false: 503} {
		limited := Limit(hello, Options{URL: server.URL, Token: "x", Asker: server.Client(), Open: open})
		if got := login(limited).StatusCode; got != status {
			t.Fatalf("open %v: %d", open, got)
		}
	}
	if strings.Count(logged.String(), "gave no decision: 401") != 1 {
		t.Fatal(logged.String())
	}
}

func TestWithoutAnAnswerItDoesAsTold(t *testing.T) {
	for open, status := range map[bool]int{true: 200, false: 503} {
		limited := Limit(hello, Options{URL: os.Getenv("NOBODY_URL"), Asker: &http.Client{Timeout: time.Second}, Open: open})
		if got := login(limited).StatusCode; got != status {
			t.Fatalf("open %v: %d", open, got)
		}
	}
}

func TestAMalformedRequestIsRefusedAndDoesNotPassForWantOfAnAnswer(t *testing.T) {
	o := options()
	o.Open = true
	limited := Limit(hello, o)
	twice := http.Header{"X-Api-Key": {"one", "two"}}
	many := http.Header{"X-Many": strings.Split(strings.Repeat("y", 300), "")}
	for _, header := range []http.Header{twice, many} {
		request := httptest.NewRequest("GET", "/", nil)
		request.Header = header
		recorder := httptest.NewRecorder()
		limited.ServeHTTP(recorder, request)
		if recorder.Code != 400 {
			t.Fatalf("%d", recorder.Code)
		}
	}
}
