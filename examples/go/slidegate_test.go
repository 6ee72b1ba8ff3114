package slidegate

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// Needs Slidegate at SLIDEGATE_URL with a policy of 2/min for POST /login, and nobody at NOBODY_URL.
func login(limited http.Handler) *http.Response {
	request := httptest.NewRequest("POST", "/login?x", strings.NewReader("name=x"))
	request.RemoteAddr = "203.0.113.9:1234"
	recorder := httptest.NewRecorder()
	limited.ServeHTTP(recorder, request)
	return recorder.Result()
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, "hello")
})

func TestClientsAreLimitedAndToldWhereTheyStand(t *testing.T) {
	limited := Limit(hello, os.Getenv("SLIDEGATE_URL"), &http.Client{Timeout: 5 * time.Second}, false)
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

func TestWithoutAnAnswerItDoesAsTold(t *testing.T) {
	for open, status := range map[bool]int{true: 200, false: 503} {
		limited := Limit(hello, os.Getenv("NOBODY_URL"), &http.Client{Timeout: time.Second}, open)
		if got := login(limited).StatusCode; got != status {
			t.Fatalf("open %v: %d", open, got)
		}
	}
}

func TestAMalformedRequestIsRefusedAndDoesNotPassForWantOfAnAnswer(t *testing.T) {
	limited := Limit(hello, os.Getenv("SLIDEGATE_URL"), &http.Client{Timeout: 5 * time.Second}, true)
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
