// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
)

// TestUntilKnown: an agent that has just started is asked again until it listens and knows the policies; another error
// is final.
func TestUntilKnown(t *testing.T) {
	final := errors.New("final")
	for _, tt := range []struct {
		name    string
		answers []error
		want    error
	}{
		{"at once", []error{nil}, nil},
		{
			"late", []error{
				fmt.Errorf("n1: %w", adminapi.ErrNoServer), model.Faultf(model.CodeTryAgain, "", "not known yet"), nil,
			}, nil,
		},
		{"final", []error{adminapi.ErrNoServer, final, nil}, final},
	} {
		asked := 0
		err := untilKnown(t.Context(), func() error { asked++; return tt.answers[asked-1] })
		if !errors.Is(err, tt.want) || err == nil && asked != len(tt.answers) {
			t.Errorf("%s: %v after %d questions", tt.name, err, asked)
		}
	}
}
