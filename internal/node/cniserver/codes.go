// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// codeOf is a row of the table of CNI codes: errors that wrap cause get the code and the hint.
type codeOf struct {
	cause error
	code  model.Code
	hint  string
}

// codes is the only table of CNI error codes for errors that are no *model.Error; the first matching row is used.
func codes() []codeOf {
	const spaceHint = "free disk space or make it writable, then try again"
	return []codeOf{
		{netns.ErrGone, model.CodeInvalidNetns, "CNI_NETNS must name a network namespace that exists"},
		{errPanic, model.CodeInternal, "this is a bug in weft: the agent's log has the details"},
		{context.DeadlineExceeded, model.CodeTryAgain, "try again"},
		{context.Canceled, model.CodeTryAgain, "the call was ended, try again"},
		{unix.ENOSPC, model.CodeIO, spaceHint},
		{unix.EDQUOT, model.CodeIO, spaceHint},
		{unix.EROFS, model.CodeIO, spaceHint},
		{unix.EIO, model.CodeIO, spaceHint},
		{unix.EMFILE, model.CodeTryAgain, "the agent has too many open files, try again"},
		{unix.ENOMEM, model.CodeTryAgain, "try again"},
		{unix.ENOBUFS, model.CodeTryAgain, "try again"},
		{fs.ErrPermission, model.CodeIO, "run the agent as root, with its directories writable"},
	}
}

// coded wraps an error with its code; an error that has a code is returned as it is.
func coded(err error) error {
	var f *model.Error
	if errors.As(err, &f) {
		return err
	}
	for _, row := range codes() {
		if errors.Is(err, row.cause) {
			return &model.Error{Code: row.code, Msg: err.Error(), Hint: row.hint, Err: err}
		}
	}
	return &model.Error{Code: model.CodeInternal, Msg: err.Error(), Err: err}
}

// failure returns the exit code and the output of a failed call.
func failure(err error, cniVersion string) (exit int, out []byte) {
	return 1, cni.FormatError(coded(err), cniVersion)
}

// codedOrNil is coded for an error that may be nil.
func codedOrNil(err error) error {
	if err == nil {
		return nil
	}
	return coded(err)
}
