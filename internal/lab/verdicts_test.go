// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
)

// TestRetryUntilSynced: a query is retried until the agent listens and has synced its policies; other errors are returned
// immediately.
func TestRetryUntilSynced(t *testing.T) {
	final := errors.New("final")
	for _, tt := range []struct {
		name    string
		answers []error
		want    error
	}{
		{"at once", []error{nil}, nil},
		{
			"late", []error{
				fmt.Errorf("n1: %w", adminapi.ErrNoServer), model.Errorf(model.CodeTryAgain, "", "not known yet"), nil,
			}, nil,
		},
		{"final", []error{adminapi.ErrNoServer, final, nil}, final},
	} {
		queries := 0
		err := retryUntilSynced(t.Context(), func() error { queries++; return tt.answers[queries-1] })
		if !errors.Is(err, tt.want) || err == nil && queries != len(tt.answers) {
			t.Errorf("%s: %v after %d queries", tt.name, err, queries)
		}
	}
}
