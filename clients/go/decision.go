package slidegate

import (
	"errors"
	"fmt"
)

// A Question is about a request, or has Charges. See the documentation of the decision API.
type Question struct {
	Method  string              `json:"method,omitempty"`
	Path    string              `json:"path,omitempty"`
	Headers map[string][]string `json:"headers,omitempty"`
	// Client is the client's IP address.
	Client string `json:"client,omitempty"`
	// User is the id of the authenticated user.
	User string `json:"user,omitempty"`
	// Customer is the customer, whose keys and users share an account.
	Customer string `json:"customer,omitempty"`
	Plan     string `json:"plan,omitempty"`
	// Cost is in units. Default: 1.
	Cost uint32 `json:"cost,omitempty"`
	// Hold is how many units to hold until the decision is settled, in place of Cost.
	Hold uint32 `json:"hold,omitempty"`
	// Refundable says whether the decision may be refunded. Not needed with Hold.
	Refundable bool `json:"refundable,omitempty"`
	// Trusted says whether the application vouches for the headers, including those that policies name.
	Trusted bool `json:"trusted,omitempty"`
	// Charges name accounts, in place of a request.
	Charges []Charge `json:"charges,omitempty"`
}

// A Charge is what to spend from one account.
type Charge struct {
	Policy   string   `json:"policy"`
	Identity Identity `json:"identity"`
	Plan     string   `json:"plan,omitempty"`
	Cost     uint32   `json:"cost,omitempty"`
}

// An Identity is the owner of an account, such as {"user", "42"}.
type Identity struct {
	Kind  string `json:"kind"`
	Value string `json:"value,omitempty"`
}

// A Decision is what Slidegate decided about a request.
type Decision struct {
	// Verdict is "allow", "deny", "block" or "unavailable".
	Verdict string
	Reason  string
	// RetryAfterMS is after how many milliseconds the same request would be allowed, or 0 if waiting does not help.
	RetryAfterMS uint64
	// Degraded says whether a failure affected the decision: of Slidegate's store, or no answer from Slidegate.
	Degraded bool
	// Status is the status for the client if the request was refused, else 200.
	Status int
	// Headers are for the response, whether the request was allowed or refused.
	Headers map[string]string
	// Body is for the client, if the request was refused.
	Body string

	settle func(units uint32) error // nil if nothing was spent that could be settled.
}

// Allowed says whether the request may pass.
func (d *Decision) Allowed() bool {
	return d.Verdict == "allow"
}

// Settle states what a request with a Hold cost. It does nothing if nothing was spent, as without an answer.
//
// It does not use the context of the request, so that it also works after the client is gone.
func (d *Decision) Settle(units uint32) error {
	if d == nil {
		return errors.New("slidegate did not settle: the request did not pass a Limiter")
	}
	if d.settle == nil {
		return nil
	}
	return d.settle(units)
}

// Refund gives back everything that a request with a Hold or Refundable spent.
func (d *Decision) Refund() error {
	return d.Settle(0)
}

// A SettleError is an answer other than success. What was not settled stays spent until its window ends.
type SettleError struct {
	// Status is 409 if the decision was settled before, and 404 if it was too late.
	Status int
	Detail string
}

func (e *SettleError) Error() string {
	return fmt.Sprintf("slidegate did not settle: %d %s", e.Status, e.Detail)
}
