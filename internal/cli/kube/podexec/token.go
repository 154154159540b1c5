// SPDX-License-Identifier: Apache-2.0

package podexec

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/weft-net/weft/internal/model"
)

// Token returns the bearer token with which requests to the API server are sent, whichever way the kubeconfig gets it: as it
// is, from a file, or from a program. A client certificate is none.
func (a *Agents) Token(ctx context.Context) (string, error) {
	cfg := rest.CopyConfig(a.config)
	var sent string
	last := roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = r.Header.Get("Authorization")
		return nil, errNotSent
	})
	wrap := cfg.WrapTransport
	cfg.WrapTransport = func(http.RoundTripper) http.RoundTripper { // the innermost one
		if wrap != nil {
			return wrap(last)
		}
		return last
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return "", fmt.Errorf("token of the kubeconfig: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api-server/", nil)
	if err != nil {
		return "", err
	}
	if answer, err := transport.RoundTrip(r); err == nil {
		_ = answer.Body.Close()
	} else if !errors.Is(err, errNotSent) {
		return "", fmt.Errorf("token of the kubeconfig: %w", err)
	}
	if scheme, token, _ := strings.Cut(sent, " "); strings.EqualFold(scheme, "bearer") && token != "" {
		return token, nil
	}
	return "", model.Errorf(model.CodeInvalidConf, "add --token-file with a token, as of `kubectl create token NAME`",
		"the kubeconfig has no bearer token, which the agents require")
}

var errNotSent = errors.New("the request is not sent")

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
