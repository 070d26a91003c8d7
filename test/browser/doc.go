// Package browser uses the approvers' page as a person does: Debian's Chromium,
// driven through playwright-core, with a virtual authenticator. `make browser`
// installs both and runs it; elsewhere the tests are skipped with the reason.
package browser
