package slidegate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// The most that is read of an answer. Those of Slidegate have some kilobytes.
const maxAnswerBytes = 1 << 20

type client struct {
	decideURL, settleURL, token string

	fail Fail
	logf func(format string, arguments ...any)
	http *http.Client
}

// An answer of the decision API: a decision, or a problem with a detail.
type answer struct {
	Verdict, ID, Reason, Body, Detail string

	RetryAfterMS uint64 `json:"retry_after_ms"`
	Degraded     bool
	Status       int
	Headers      map[string]string
}

func (c *client) decide(question Question) *Decision {
	status, answer, err := c.post(c.decideURL, question)
	switch {
	case err != nil:
		return c.failed(err)
	case answer.Verdict == "allow":
		answer.Status = http.StatusOK
	case answer.Verdict != "" && answer.Status >= 200:
	// Any client can send a request about which Slidegate cannot be asked, so it never passes.
	case status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge:
		c.logf("slidegate refused the question: %d %s", status, answer.Detail)
		decision := refusal("block", http.StatusBadRequest)
		decision.Reason = "bad-request"
		return decision
	default:
		return c.failed(fmt.Errorf("%d %s", status, answer.Detail))
	}
	decision := &Decision{
		Verdict:      answer.Verdict,
		Reason:       answer.Reason,
		RetryAfterMS: answer.RetryAfterMS,
		Degraded:     answer.Degraded,
		Status:       answer.Status,
		Headers:      answer.Headers,
		Body:         answer.Body,
	}
	if answer.ID != "" {
		decision.settle = func(units uint32) error { return c.settle(answer.ID, units) }
	}
	return decision
}

func (c *client) failed(err error) *Decision {
	c.logf("slidegate gave no decision: %v", err)
	if c.fail == FailOpen {
		return &Decision{Verdict: "allow", Status: http.StatusOK, Degraded: true}
	}
	decision := refusal("unavailable", http.StatusServiceUnavailable)
	decision.Headers["Retry-After"] = "1"
	decision.Degraded = true
	return decision
}

func refusal(verdict string, status int) *Decision {
	headers := map[string]string{"Content-Type": "text/plain"}
	return &Decision{Verdict: verdict, Status: status, Headers: headers, Body: http.StatusText(status)}
}

func (c *client) settle(id string, units uint32) error {
	settlement := struct {
		ID    string `json:"id"`
		Units uint32 `json:"units"`
	}{id, units}
	status, answer, err := c.post(c.settleURL, settlement)
	if err != nil {
		return fmt.Errorf("slidegate did not settle: %w", err)
	}
	if status != http.StatusOK {
		return &SettleError{status, answer.Detail}
	}
	return nil
}

// post returns the status and the answer, which is empty if the body is not one.
func (c *client) post(url string, body any) (int, answer, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return 0, answer{}, err
	}
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(content))
	if err != nil {
		return 0, answer{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		request.Header.Set("X-Slidegate-Token", c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, answer{}, err
	}
	defer response.Body.Close()
	content, err = io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return 0, answer{}, err
	}
	return response.StatusCode, parse(content), nil
}

func parse(content []byte) answer {
	var parsed answer
	if json.Unmarshal(content, &parsed) != nil {
		return answer{}
	}
	return parsed
}
