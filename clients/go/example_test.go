package slidegate_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	slidegate "github.com/slidegate/slidegate/clients/go"
)

func Example() {
	limiter, err := slidegate.New(slidegate.Options{
		Describe: func(r *http.Request, question *slidegate.Question) {
			question.User = r.Header.Get("X-User") // What the application knows of its user.
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/reports", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello")
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:3000", limiter.Middleware(mux)))
}

// A handler that knows later what a request has cost.
func ExampleDecision_Settle() {
	limiter, err := slidegate.New(slidegate.Options{
		URL: slidegateForExample(),
		Describe: func(r *http.Request, question *slidegate.Question) {
			question.Hold = 2000
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	chat := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		decision := slidegate.FromContext(r.Context())
		text, tokens, err := complete()
		if err != nil {
			decision.Refund()
			http.Error(w, "the model failed", http.StatusBadGateway)
			return
		}
		if err := decision.Settle(tokens); err != nil {
			log.Print(err)
		}
		io.WriteString(w, text)
	})
	response := httptest.NewRecorder()
	limiter.Middleware(chat).ServeHTTP(response, httptest.NewRequest("POST", "/chat", nil))
	fmt.Println(response.Body)
	// Output:
	// /v1/decide
	// /v1/settle {"id":"i","units":1370}
	// hello
}

func complete() (text string, tokens uint32, err error) {
	return "hello", 1370, nil
}

// slidegateForExample returns the address of a Slidegate that prints what it is asked.
func slidegateForExample() string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/decide" {
			fmt.Println(r.URL.Path)
			io.WriteString(w, `{"verdict": "allow", "id": "i"}`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.URL.Path, string(body))
		io.WriteString(w, `{"settled": true}`)
	}))
	return server.URL
}
