package code_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/risk/shell/code"
	"sallyport.dev/sallyport/risk/shell/word"
)

func looks(t *testing.T, language string, args ...string) bool {
	t.Helper()
	var words []word.Word
	for _, a := range args {
		words = append(words, word.Word{Text: a, Known: true, Glob: strings.Contains(a, "*.")})
	}
	c, ok := code.Given(language, words, "")
	if !ok {
		return false
	}
	_, ok = code.Looks(c)
	return ok
}

func TestPerl(t *testing.T) {
	for _, program := range []string{
		`print if /a/ .. /b/`, `print $F[3] if $F[8] =~ /^5/`, `print "$1\n" while /<a>(.*?)<\/a>/gs`, `s/(\d{10})/localtime($1)/e`, `$t += $F[1]; END { print $t / $. }`,
		`$h{$F[2]} += $F[4]; END { printf "%s\t%.2f\n", $_, $h{$_} for sort { $h{$b} <=> $h{$a} } keys %h }`, `print "$.: $_" if length > 100`, `printf "%b\n", 202; print ord("A"), "\n"`, `tr/a-z/A-Z/; print`,
		`$h{$1}{$2}++ if /(a)(b)/`, `my @w = split /,/; print scalar(@w), "\n"`, `print join(",", map { $_ * 2 } grep { $_ > 1 } @F), "\n"`, `print unless $seen{$_}++`, `local $/; print length(<STDIN>)`,
	} {
		if !looks(t, "perl", "-ne", program, "a.txt") {
			t.Errorf("%q is refused", program)
		}
	}
	for _, args := range [][]string{{"-MList::Util=sum", "-lane", `print sum(@F)`}, {"-MJSON::PP", "-e", `my $d = decode_json(<STDIN>); print scalar(@$d), $d->{a}[0], "\n"`}, {"-F,", "-lane", `print $F[1]`, "x.csv"},
		{"-0777", "-ne", `print length`, "logs/*.log"}, {"-MTime::Piece", "-e", `print Time::Piece->strptime("2025", "%Y")->epoch`}} {
		if !looks(t, "perl", args...) {
			t.Errorf("%q is refused", args)
		}
	}
	for _, program := range []string{
		"system 'rm a'", "`rm a`", "print `rm a`", "unlink 'a'", "qx/rm a/", "exec 'a'", "open F, '>a'", "open(my $f, '>', 'a')", "rename 'a', 'b'", "eval 'unlink 1'", "do 'evil.pl'", "require './evil.pl'", "use lib '.'",
		"s/a/unlink 'b'/e", "s/a/'unlink 1'/ee", "s{a}{`rm b`}e", `print "@{[unlink 'a']}"`, `print "${\ system('a')}"`, `print "$h{system('a')}"`, `print "$h{a}[unlink 1]"`, `print "$x->[0][unlink 1]"`, `print "$x->[unlink 1]"`, `/$h{a}[unlink 1]/`, `print "$a[unlink 'a']"`, "/(?{unlink 'a'})/", "/(??{unlink 'a'})/", "/@{[unlink 'a']}/",
		"@ARGV = ('rm a|')", "push @ARGV, 'rm a|'", "$^I = ''", "BEGIN { $^I = '' }", "$SIG{ALRM} = 'a'", "$SIG{__WARN__} = 'POSIX::remove'", "@INC = ('x')", "*a = *b", "*{'a'} = 1", "&foo", "&{'system'}('a')", "$x->('a')", "$x->$y", "'system'->('a')",
		"$x = 'ARGV'; push @$x, 'rm a|'", "$x = 'ARGV'; $x->[0] = 'rm a|'", "$F[0][0] = 'rm a|'", "$h{a}[0] = 'rm a|'", "$x = qq(\tI); $$x = ''", "print \"$h{unlink 'a'}\"", "print \"$h{a}{unlink}\"; $h{b}[unlink 'a']", "@{'ARGV'} = 1", "print {$f} 1", "print <a*>", "print <$f>", "print <<E\n1\nE\n", "goto a", "sub x { 1 }", "syscall 1", "kill 9, 1", "fork", "chmod 0, 'a'", "mkdir 'a'", "symlink 1, 2",
		"local @ARGV = 'a|'; print <>", "time / 2; unlink('a'); 1 / 2", "shift / unlink('a') / 1", "} / 1; unlink 'a'; /", "print 'a\n=pod\n'; unlink 'a'", "\n=pod\n'\n=cut\nunlink 'a' #'", "__PACKAGE__->can('a')", "main'x", "CORE::system('a')", "POSIX::unlink('a')", "q'a' ; unlink 'b'", "y #a#b#; unlink 'a'",
		"IO::File->new('a', 'w')", "$x = 'IO::File'; $x->new('a', 'w')", "dump", "tie %a, 'b'", "bless {}, 'x'", "print -s 'a'; unlink 'b'", "select F", "truncate 'a', 0", "write", "dbmopen %a, 'b', 1", "sysopen F, 'a', 1", "$0->x", "print $$x[0]", "opendir D, '.'",
	} {
		if looks(t, "perl", "-ne", program, "a.txt") {
			t.Errorf("%q passes", program)
		}
	}
	for _, args := range [][]string{{"-i", "-pe", "1"}, {"-pi", "-e", "1"}, {"-ne", "print", "rm a|"}, {"-ne", "print", ">a"}, {"-ne", "print", "*"}, {"-ne", "print", "a*"}, {"-Mevil", "-e", "1"}, {"-MPOSIX", "-e", "$x = 'SIG'; $x->{__WARN__} = 'POSIX::remove'; warn 1"}, {"-MPOSIX;unlink('a')", "-e", "1"}, {"-MPOSIX=a;unlink", "-e", "1"},
		{"-I.", "-e", "1"}, {"-e", "1", "-e", "unlink 1"}, {"-F/,/;unlink(1);/x/", "-ane", "1"}, {"-F'", "-ane", "1"}, {"-s", "-e", "1"}, {"-x", "a"}, {"-S", "a"}, {"-d", "-e", "1"}, {"-MStorable", "-e", "1"}, {"a.pl"}, {"-n", "a.pl"}, {"-MEncode", "-e", "$x = 'INC'; @{$x} = 1"}} {
		if looks(t, "perl", args...) {
			t.Errorf("%q passes", args)
		}
	}
}

func TestRuby(t *testing.T) {
	for _, program := range []string{
		`puts (1..20).select(&:even?).sum`, `puts JSON.parse(STDIN.read).map { |r| r["name"] }`, `CSV.foreach("a.csv", headers: true) { |r| puts r["id"] if r["total"].to_f > 100 }`, `d = JSON.parse(File.read("a")); puts d["b"].to_a.map { |k, v| "#{k}: #{v}" }`,
		`puts $_.split("\t")[2] if $_ =~ /ERROR/`, `puts (Date.new(2025,12,31) - Date.today).to_i`, `a = Set.new(File.readlines("a", chomp: true)); b = Set.new(File.readlines("b", chomp: true)); puts (a - b).to_a`,
		`h = Hash.new(0); STDIN.each_line { |l| h[l[/level=(\w+)/, 1]] += 1 }; p h`, `puts ARGF.each_line.map(&:to_f).sum`, `puts Time.at(0).utc.strftime("%F")`, `puts %w[a b].each_with_index.map { |x, i| x * i }.inject(:+)`, `puts 10 / 3, 10 % 3`,
	} {
		if !looks(t, "ruby", "-rjson", "-e", program, "a.txt") {
			t.Errorf("%q is refused", program)
		}
	}
	for _, program := range []string{
		"system 'rm a'", "`rm a`", "puts `rm a`", "%x(rm a)", "puts %x[rm a]", "exec 'a'", "open('|rm a')", "IO.read('|rm a')", "STDIN.class.read('|rm a')", "File.write('a', '')", "File.delete('a')", "File.open('a', 'w')", "File.read('a', mode: 'w')",
		"x = File; x.delete('a')", "[File][0].delete('a')", "File.send(:delete, 'a')", "puts \"#{File.delete('a')}\"", "puts \"#{`rm a`}\"", "eval 'a'", "send(:system, 'a')", "Kernel.system 'a'", "Object.const_get(:File)", "method(:system).call('a')",
		"['a', 'rm b'].inject(:system)", "['rm a'].each(&:system)", "['rm a'].each(&method(:system))", "system = 1; system 'a'", "require './evil'", "load 'a'", "Dir.mkdir('a')", "FileUtils.rm('a')", "Process.kill(9, 1)", "ObjectSpace.each_object", "Marshal.load('a')",
		"YAML.load('a')", "YAML.load_file('a')", "JSON.load('a')", "JSON.parse('a', create_additions: true)", "CSV.open('a', 'w')", "CSV.foreach('a', 'w')", "h = JSON.parse('a'); File.read('b', **h)", "h = {}; File.read('b', h)", "CSV.read('a', 'w')", "ERB.new('a').result",
		"spawn 'a'", "fork", "trap('INT') { }", "at_exit { }", "exit!", "define_method(:a) { }", "instance_eval 'a'", "$0 = 'a'; system", "$: << '.'", "$LOAD_PATH << '.'", "$-i = ''", "ARGF.inplace_mode = ''", "x /1; system('a') / 2", "puts /#{system 'a'}/", "puts <<E\n#{system 'a'}\nE\n",
		"__send__ :system", "\n=begin\n'\n=end\nsystem 'a' #'", "?'; system 'a' #'", "URI.open('http://a')", "Thread.new { }", "class String; end", "module A; end", "puts :a.to_proc", "alias a b", "p(*%i[a])", "BasicObject", "self.send", "test ?d, 'a'", "puts 1 if system 'a'",
		"(system) { }; system", "->(system) { system 'a' }", "STDOUT.reopen('a')", "$stdout.reopen('a', 'w')", "$stderr = File.new('a', 'w')", "IO.popen('a')", "IO.write('a', '')", "Pathname.new('a').delete", "binding.irb", "syscall 1", "'a'.public_send(:b)", "\"#$x\"",
	} {
		if looks(t, "ruby", "-rjson", "-e", program, "a.txt") {
			t.Errorf("%q passes", program)
		}
	}
	for _, args := range [][]string{{"-i", "-pe", "1"}, {"-r./evil", "-e", "1"}, {"-ropen-uri", "-e", "1"}, {"-I.", "-e", "1"}, {"-rfileutils", "-e", "1"}, {"a.rb"}, {"-r", "./evil", "-e", "1"}, {"-e", "1", "-e", "`a`"}, {"-S", "a"}, {"-x", "a"}, {"-C/", "-e", "1"}} {
		if looks(t, "ruby", args...) {
			t.Errorf("%q passes", args)
		}
	}
}
