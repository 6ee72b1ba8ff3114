package slidegate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	slidegate "github.com/slidegate/slidegate/clients/go"
)

// fake answers questions in place of Slidegate, in this order, and records them.
type fake struct {
	*httptest.Server
	answers   []reply
	questions []string
}

type reply struct {
	status int
	body   string
}

const (
	allow  = `{"verdict": "allow", "id": "i", "degraded": false, "headers": {"x-ratelimit-limit": "1"}}`
	refuse = `{"verdict": "block", "reason": "bad-request", "status": 400, "body": "no", "headers": {"a": "b"}}`
)

func start(t *testing.T, answers ...reply) *fake {
	f := &fake{answers: answers}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		f.questions = append(f.questions, fmt.Sprintf("%s %s %s", r.URL.Path, r.Header.Get("X-Slidegate-Token"), body))
		w.WriteHeader(f.answers[0].status)
		_, _ = io.WriteString(w, f.answers[0].body)
		f.answers = f.answers[1:]
	}))
	t.Cleanup(f.Close)
	return f
}

func limiter(t *testing.T, options slidegate.Options) (*slidegate.Limiter, *[]string) {
	var lines []string
	options.Timeout = 5 * time.Second
	options.Logf = func(format string, arguments ...any) { lines = append(lines, fmt.Sprintf(format, arguments...)) }
	limiter, err := slidegate.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return limiter, &lines
}

func TestAnInvalidOptionIsNamed(t *testing.T) {
	for message, options := range map[string]slidegate.Options{
		`URL must be an http or https URL, not "127.0.0.1:8081"`: {URL: "127.0.0.1:8081"},
		`URL must be an http or https URL, not "ftp://a/"`:       {URL: "ftp://a/"},
		`URL must be an http or https URL, not "http://"`:        {URL: "http://"},
		"Timeout must not be negative: -1ns":                     {Timeout: -1},
		"Fail must be FailOpen or FailClosed, not 2":             {Fail: 2},
	} {
		if _, err := slidegate.New(options); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%v, not %s", err, message)
		}
	}
}

func TestAPathInTheAddressIsKept(t *testing.T) {
	for _, path := range []string{"/behind/proxy", "/behind/proxy/"} {
		slidegated := start(t, reply{200, allow})
		limiter, _ := limiter(t, slidegate.Options{URL: slidegated.URL + path, Token: "t"})
		if !limiter.Decide(slidegate.Question{User: "7"}).Allowed() {
			t.Error("it was refused")
		}
		if expected := []string{`/behind/proxy/v1/decide t {"user":"7"}`}; !reflect.DeepEqual(slidegated.questions, expected) {
			t.Error(slidegated.questions)
		}
	}
}

func TestOnlyWhatAnyClientCanCauseIsRefusedWhenFailingOpen(t *testing.T) {
	for _, c := range []struct {
		answer       reply
		open, closed int
		line         string
	}{
		{reply{400, refuse}, 400, 400, ""},
		{reply{400, `{"detail": "path: is long"}`}, 400, 400, "refused the question: 400 path: is long"},
		{reply{413, "too large"}, 400, 400, "refused the question: 413"},
		{reply{401, `{"detail": "no token"}`}, 200, 503, "gave no decision: 401 no token"},
		{reply{500, ""}, 200, 503, "gave no decision: 500"},
		{reply{200, "hello"}, 200, 503, "gave no decision: 200"},
		{reply{200, "null"}, 200, 503, "gave no decision: 200"},
		{reply{200, "[]"}, 200, 503, "gave no decision: 200"},
		{reply{200, `{"verdict": "deny"}`}, 200, 503, "gave no decision: 200"},
		{reply{200, `{"verdict": "allow", "status": "many"}`}, 200, 503, "gave no decision: 200"},
	} {
		for fail, status := range map[slidegate.Fail]int{slidegate.FailOpen: c.open, slidegate.FailClosed: c.closed} {
			slidegated := start(t, c.answer)
			limiter, lines := limiter(t, slidegate.Options{URL: slidegated.URL, Fail: fail})
			decision := limiter.Decide(slidegate.Question{})
			if decision.Status != status || decision.Allowed() != (status == 200) || decision.Degraded != (status != 400) {
				t.Errorf("%v: %+v", c.answer, decision)
			}
			if all := strings.Join(*lines, "\n"); !strings.Contains(all, c.line) || (all == "") != (c.line == "") {
				t.Errorf("%v: %s", c.answer, all)
			}
			if err := decision.Settle(1); err != nil || len(slidegated.questions) != 1 {
				t.Errorf("nothing was spent that could be settled: %v", err)
			}
		}
	}
}

func TestASettlementThatFailsIsAnError(t *testing.T) {
	slidegated := start(t, reply{200, allow}, reply{200, "{}"}, reply{409, `{"detail": "it was settled before"}`}, reply{200, "{}"})
	limiter, _ := limiter(t, slidegate.Options{URL: slidegated.URL})
	decision := limiter.Decide(slidegate.Question{Hold: 2})
	if err := decision.Settle(1); err != nil {
		t.Error(err)
	}
	var failed *slidegate.SettleError
	if err := decision.Settle(math.MaxUint32); !errors.As(err, &failed) || failed.Status != 409 {
		t.Error(err)
	}
	if err := decision.Refund(); err != nil {
		t.Error(err)
	}
	expected := []string{
		`/v1/decide  {"hold":2}`,
		`/v1/settle  {"id":"i","units":1}`,
		`/v1/settle  {"id":"i","units":4294967295}`,
		`/v1/settle  {"id":"i","units":0}`,
	}
	if !reflect.DeepEqual(slidegated.questions, expected) {
		t.Error(slidegated.questions)
	}
	slidegated.Close()
	if err := decision.Settle(1); err == nil {
		t.Error("it was settled without Slidegate")
	}
	request := httptest.NewRequest("GET", "/", nil)
	if err := slidegate.FromContext(request.Context()).Refund(); err == nil {
		t.Error("it was refunded without a Limiter")
	}
}

func TestTheQuestionIsAboutTheRequest(t *testing.T) {
	slidegated := start(t, reply{200, allow})
	limiter, _ := limiter(t, slidegate.Options{
		URL:      slidegated.URL,
		Describe: func(r *http.Request, question *slidegate.Question) { question.Plan = "pro" },
	})
	handler := limiter.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, slidegate.FromContext(r.Context()).Verdict)
	}))
	request := httptest.NewRequest("PUT", "/a%2fb?c", nil)
	request.Header["X-Api-Key"] = []string{"k", "l"}
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, request)
	if response.Body.String() != "allow" || response.Header().Get("X-RateLimit-Limit") != "1" {
		t.Error(response)
	}
	var question map[string]any
	if err := json.Unmarshal([]byte(strings.TrimPrefix(slidegated.questions[0], "/v1/decide  ")), &question); err != nil {
		t.Fatal(err)
	}
	if expected := map[string]any{
		"method":  "PUT",
		"path":    "/a%2fb?c",
		"headers": map[string]any{"X-Api-Key": []any{"k", "l"}},
		"client":  "192.0.2.1",
		"plan":    "pro",
	}; !reflect.DeepEqual(question, expected) {
		t.Error(question)
	}
}
