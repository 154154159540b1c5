// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// ErrorDocument is the protocol's error object.
type ErrorDocument struct {
	CNIVersion string `json:"cniVersion,omitempty"`
	Code       uint   `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details,omitempty"`
}

// FormatError formats an error as the protocol's error object. A *model.Error keeps its code, everything else is 999.
func FormatError(err error, cniVersion string) []byte {
	if cniVersion == "" {
		cniVersion = Latest
	}
	d := ErrorDocument{CNIVersion: cniVersion, Code: uint(model.CodeInternal), Msg: err.Error()}
	var f *model.Error
	if errors.As(err, &f) {
		d.Code, d.Details = uint(f.Code), f.Hint
		if f.Hint != "" {
			d.Msg = strings.TrimSuffix(d.Msg, " ("+f.Hint+")")
		}
	}
	b, err := json.MarshalIndent(d, "", "    ")
	if err != nil {
		return nil // strings and a number always marshal
	}
	return append(b, '\n')
}

// ParseError parses the error object that a foreign plugin printed. ok is false if it printed none.
func ParseError(b []byte) (f *model.Error, ok bool) {
	var d ErrorDocument
	if len(b) > maxConf || json.Unmarshal(b, &d) != nil || d.Code == 0 && d.Msg == "" {
		return nil, false
	}
	code := model.Code(d.Code)
	if code == 0 {
		code = model.CodeForeign
	}
	return &model.Error{Code: code, Msg: d.Msg, Hint: d.Details}, true
}
